//! Rows as text: constants, numbers, and texts as JSON strings, one behind the other.

use crate::table::string;

/// A piece has so many numbers: its kind, and three that depend on the kind.
pub const WIDTH: usize = 4;

/// Why a row is not written: there is no room, or the caller has to write it.
pub enum Stop {
    Full,
    Odd,
}
type Written = Result<(), Stop>;

/// What the rows are made of.
pub struct Template<'a> {
    /// Pieces, one behind the other; an invalid piece makes a row odd.
    pub pieces: &'a [i64],
    /// Texts that pieces and columns name by start and length.
    pub constants: &'a [u8],
    /// Holds the texts of columns.
    pub buf: &'a [u8],
    /// Ascending: characters from the first on are odd, those from the second on are not, and so on.
    pub bounds: &'a [i64],
    /// int64[columns, rows]; a text is two columns: start and length.
    pub columns: &'a [i64],
    pub rows: usize,
}

impl Template<'_> {
    /// Write the rows from `first` on as far as there is room. ends: where each row ends, -1 for an odd row, which is
    /// left out. Returns the next row.
    pub fn write(&self, first: usize, ends: &mut [i64], out: &mut [u8]) -> i64 {
        let mut out = Out { bytes: out, at: 0, bounds: self.bounds };
        for (row, end) in ends.iter_mut().enumerate().take(self.rows).skip(first) {
            let begin = out.at;
            *end = match self.pieces.chunks(WIDTH).try_for_each(|piece| self.piece(piece, row, &mut out)) {
                Ok(()) => out.at as i64,
                Err(Stop::Full) => return row as i64,
                Err(Stop::Odd) => -1,
            };
            out.at = if *end < 0 { begin } else { out.at };
        }
        self.rows as i64
    }

    fn piece(&self, piece: &[i64], row: usize, out: &mut Out) -> Written {
        let &[kind, column, a, b] = piece else { return Err(Stop::Odd) };
        if kind == 0 {
            return out.put(string(self.constants, column, a).ok_or(Stop::Odd)?);
        }
        let at = usize::try_from(column).ok().and_then(|column| column.checked_mul(self.rows)?.checked_add(row));
        let at = at.filter(|&at| at < self.columns.len()).ok_or(Stop::Odd)?;
        let number = self.columns[at];
        if kind < 3 {
            let digit = |i: i64| b"0123456789ABCDEF"[(number >> (4 * i) & 15) as usize];
            let mut digits = (0..a.min(16)).rev();
            return if kind == 1 { out.number(number) } else { digits.try_for_each(|i| out.put(&[digit(i)])) };
        }
        let length = *at.checked_add(self.rows).and_then(|at| self.columns.get(at)).ok_or(Stop::Odd)?;
        let text = string(if kind == 3 { self.constants } else { self.buf }, number, length).ok_or(Stop::Odd)?;
        match kind {
            3 => out.put(text),
            4 => out.string(text),
            5 if text.is_empty() => out.put(b"null"),
            5 => out.string(text),
            // parts between separators `a`, without empty ones
            6 => {
                let parts = text.split(|&byte| i64::from(byte) == a).filter(|part| !part.is_empty());
                out.all(b"[]", parts, |out, part| out.string(part))
            }
            // names and values: separator `a` inside of each item, `b` behind it
            7 => {
                let items = text.strip_suffix(&[b as u8]).unwrap_or(text);
                let each = items.split(|&byte| i64::from(byte) == b).skip(usize::from(text.is_empty()));
                out.all(b"{}", each, |out, item| {
                    let at = item.iter().position(|&byte| i64::from(byte) == a).ok_or(Stop::Odd)?;
                    let (name, value) = (&item[..at], &item[at + 1..]);
                    if name.is_empty() || value.is_empty() || value.contains(&item[at]) {
                        return Err(Stop::Odd);
                    }
                    out.string(name)?;
                    out.put(b":")?;
                    out.string(value)
                })
            }
            _ => Err(Stop::Odd),
        }
    }
}

struct Out<'a> {
    bytes: &'a mut [u8],
    at: usize,
    bounds: &'a [i64],
}

impl Out<'_> {
    fn put(&mut self, text: &[u8]) -> Written {
        let end = self.at + text.len();
        self.bytes.get_mut(self.at..end).ok_or(Stop::Full)?.copy_from_slice(text);
        self.at = end;
        Ok(())
    }

    fn number(&mut self, number: i64) -> Written {
        let (mut digits, mut at, mut left) = ([b'-'; 20], 20, number.unsigned_abs());
        while at == 20 || left > 0 {
            at -= 1;
            digits[at] = b'0' + (left % 10) as u8;
            left /= 10;
        }
        self.put(&digits[at - usize::from(number < 0)..])
    }

    fn all<'t>(
        &mut self, around: &[u8; 2], each: impl Iterator<Item = &'t [u8]>, write: impl Fn(&mut Self, &[u8]) -> Written,
    ) -> Written {
        self.put(&around[..1])?;
        for (i, one) in each.enumerate() {
            self.put(if i > 0 { b"," } else { b"" })?;
            write(self, one)?;
        }
        self.put(&around[1..])
    }

    /// Write a JSON string. Odd: not UTF-8, or with a character that the caller has to look at.
    fn string(&mut self, text: &[u8]) -> Written {
        let is_odd = |char: char| self.bounds.partition_point(|&bound| bound <= i64::from(u32::from(char))) % 2 == 1;
        if !text.is_ascii() && std::str::from_utf8(text).map_or(true, |text| text.chars().any(is_odd)) {
            return Err(Stop::Odd);
        }
        self.put(b"\"")?;
        let mut rest = text;
        loop {
            let (plain, behind) = rest.split_at(plain(rest));
            self.put(plain)?;
            let Some((&byte, behind)) = behind.split_first() else { return self.put(b"\"") };
            let digit = |half: u8| b"0123456789abcdef"[usize::from(half)];
            match byte {
                b'"' | b'\\' => self.put(&[b'\\', byte])?,
                8..=10 | 12 | 13 => self.put(&[b'\\', b"btn-fr"[usize::from(byte) - 8]])?,
                0..=31 => self.put(&[b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte & 15)])?,
                _ => return Err(Stop::Odd),
            }
            rest = behind;
        }
    }
}

/// How many bytes at the front need no escape: no control, quote, backslash, DEL.
fn plain(text: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let below = |word: u64, byte: u64| word.wrapping_sub(ONES * byte) & !word;
    for (i, word) in text.chunks_exact(8).enumerate() {
        let word = u64::from_le_bytes(word.try_into().unwrap_or_default());
        let is = |byte: u64| below(word ^ (ONES * byte), 1);
        let found = (below(word, 32) | is(0x22) | is(0x5C) | is(0x7F)) & (ONES << 7);
        if found != 0 {
            return 8 * i + (found.trailing_zeros() / 8) as usize;
        }
    }
    let at = text.len() & !7;
    at + text[at..].iter().position(|byte| matches!(byte, 0..=31 | b'"' | b'\\' | 0x7F)).unwrap_or(text.len() - at)
}
