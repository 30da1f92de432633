//! A table: what Python makes of a construct schema. Its steps go over a record's bytes from front to back; each writes
//! numbers of records into columns. A string is two columns: start and length.

use std::ops::Range;

/// One row of a table: the operation and up to five numbers.
pub const WIDTH: usize = 6;

/// At most so many records go through the steps together.
pub const BLOCK: usize = 128;

/// What to do next with the bytes of a record.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Make the next bytes the run, which the steps behind this one read.
    Run(usize),
    /// A number of 1, 2, 4 or 8 bytes in the run.
    Number { column: usize, offset: usize, width: usize, signed: bool, little: bool },
    /// A string of a fixed number of bytes in the run.
    Fixed { column: usize, offset: usize, length: usize },
    /// A string of as many bytes as column `length` says, plus `add`; without a column all that is left.
    Take { column: usize, length: Option<usize>, add: i64 },
    /// Take the next `yes` steps if a column is `number` (or has some of its bits), else the `no` steps behind them.
    If { column: usize, equal: bool, number: i64, yes: usize, no: usize },
}

/// What must hold for a column of a record that a chain continues behind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// It is the record's size.
    Size,
    /// It is the record's own position.
    Position,
    /// It is one of three numbers.
    Known([i64; 3]),
}

/// A checked table: no column is out of range.
#[derive(Clone, Debug, Default)]
pub struct Table {
    steps: Vec<Step>,
    rules: Vec<(usize, Rule)>,
    /// Column of the string, and column of its checksum.
    checksum: Option<(usize, usize)>,
    /// Number of columns that it fills.
    pub columns: usize,
}

/// Where records begin and may end, and how far the steps have come.
pub struct Block {
    /// First byte of each record.
    pub starts: [usize; BLOCK],
    /// Byte behind the last one that may be read.
    pub limits: [usize; BLOCK],
    /// Byte behind the last one that was read.
    pub ends: [usize; BLOCK],
    /// Whether all lengths fit and all bytes were there.
    pub ok: [bool; BLOCK],
    /// Where the run begins; `NOWHERE` for a record that is not ok.
    runs: [usize; BLOCK],
}

/// No buffer has a byte here, or within a run behind it.
const NOWHERE: usize = usize::MAX >> 1;

impl Default for Block {
    fn default() -> Block {
        let nothing = [0; BLOCK];
        Block { starts: nothing, limits: nothing, ends: nothing, ok: [false; BLOCK], runs: [NOWHERE; BLOCK] }
    }
}

impl Block {
    /// Pass the next bytes of a record. Returns where they begin; None: they are not all there.
    #[inline]
    fn pass(&mut self, i: usize, length: Option<usize>) -> Option<usize> {
        let at = self.ends[i];
        let length = length.filter(|&n| self.ok[i] && n <= self.limits[i].saturating_sub(at));
        self.ok[i] = length.is_some();
        self.ends[i] = at + length.unwrap_or(0);
        length.map(|_| at)
    }
}

/// Columns of one array: `stride` numbers each.
pub struct Columns<'a> {
    numbers: &'a mut [i64],
    stride: usize,
}

impl<'a> Columns<'a> {
    /// None: there is no room for so many.
    pub fn of(numbers: &'a mut [i64], columns: usize, stride: usize) -> Option<Columns<'a>> {
        (columns.checked_mul(stride)? <= numbers.len()).then_some(Columns { numbers, stride })
    }

    fn set_string(&mut self, column: usize, row: usize, (start, length): (usize, usize)) {
        let at = column * self.stride + row;
        (self.numbers[at], self.numbers[at + self.stride]) = (start as i64, length as i64);
    }

    /// The strings of some rows.
    pub fn texts<'b>(&self, buf: &'b [u8], column: usize, rows: Range<usize>) -> Option<Texts<'b, '_>> {
        let (starts, lengths) = self.numbers.get(column * self.stride..)?.split_at_checked(self.stride)?;
        Texts::of(buf, starts.get(rows.clone())?, lengths.get(rows)?)
    }

    pub fn get(&self, column: usize, row: usize) -> i64 {
        self.numbers[column * self.stride + row]
    }
}

impl Table {
    /// Check a table of rows of six numbers, about a thousand rows at most. None: they make no sense.
    pub fn of(rows: &[i64], columns: usize) -> Option<Table> {
        if rows.len() % WIDTH != 0 || rows.len() > WIDTH << 10 || columns > 1 << 12 {
            return None;
        }
        let mut table = Table { columns, ..Table::default() };
        for row in rows.chunks_exact(WIDTH) {
            let below = |i: usize, end: usize| usize::try_from(row[i]).ok().filter(|&n| n < end);
            let (own, size) = (|i| below(i, columns), |i| below(i, 1 << 30));
            let two = |i| below(i, columns.checked_sub(1)?);
            match row[0] {
                0 => table.steps.push(Step::Number {
                    column: own(1)?,
                    offset: size(2)?,
                    width: size(3).filter(|w| matches!(w, 1 | 2 | 4 | 8))?,
                    signed: row[4] != 0,
                    little: row[5] != 0,
                }),
                1 => table.steps.push(Step::Run(size(1)?)),
                2 => table.steps.push(Step::Fixed { column: two(1)?, offset: size(2)?, length: size(3)? }),
                3 => {
                    let add = i64::from(i32::try_from(row[3]).ok()?);
                    table.steps.push(Step::Take { column: two(1)?, length: Some(own(2)?), add });
                }
                4 => table.steps.push(Step::Take { column: two(1)?, length: None, add: 0 }),
                5 => {
                    let (equal, yes, no) = (row[2] != 0, size(4)?, size(5)?);
                    table.steps.push(Step::If { column: own(1)?, equal, number: row[3], yes, no });
                }
                10 => table.rules.push((own(1)?, Rule::Size)),
                11 => table.rules.push((own(1)?, Rule::Position)),
                12 => table.rules.push((own(1)?, Rule::Known([row[2], row[3], row[4]]))),
                13 => table.checksum = Some((two(1)?, own(2)?)),
                _ => return None,
            }
        }
        Some(table)
    }

    /// Run the steps over the first `count` records of a block; results go to rows from `row` on.
    pub fn run(&self, buf: &[u8], block: &mut Block, count: usize, out: &mut Columns, row: usize) {
        for i in 0..count {
            block.ends[i] = block.starts[i];
            block.ok[i] = block.starts[i] <= block.limits[i] && block.limits[i] <= buf.len();
        }
        self.steps_over(&self.steps, buf, block, 0..count, out, row);
    }

    fn steps_over(
        &self, mut steps: &[Step], buf: &[u8], block: &mut Block, rows: Range<usize>, out: &mut Columns, row: usize,
    ) {
        while let Some((step, behind)) = steps.split_first() {
            steps = behind;
            let &Step::If { column, equal, number, yes, no } = step else {
                one(step, buf, block, rows.clone(), out, row);
                continue;
            };
            let test = |value: i64| if equal { value == number } else { value & number != 0 };
            let sides = steps.split_at_checked(yes).and_then(|(when, rest)| Some((when, rest.split_at_checked(no)?)));
            let Some((when, (unless, after))) = sides else { return block.ok[rows].fill(false) };
            // neighbours mostly take the same side: they go through its steps together
            let mut begin = rows.start;
            while begin < rows.end {
                let holds = test(out.get(column, row + begin));
                let same = (begin..rows.end).take_while(|&i| test(out.get(column, row + i)) == holds);
                let end = begin + same.count();
                self.steps_over(if holds { when } else { unless }, buf, block, begin..end, out, row);
                begin = end;
            }
            steps = after;
        }
    }

    /// How many of the first `count` records, up to the first exception, keep all rules. base: log position of the
    /// buffer.
    pub fn plain(&self, block: &Block, mut count: usize, base: i64, out: &Columns, row: usize) -> usize {
        let good = |i: usize| block.ok[i] && block.ends[i] == block.limits[i];
        count = (0..count).find(|&i| !good(i)).unwrap_or(count);
        for &(column, rule) in &self.rules {
            let numbers = &out.numbers[column * out.stride + row..][..count];
            let mut places = numbers.iter().zip(block.starts.iter().zip(&block.ends));
            let broken = match rule {
                Rule::Size => places.position(|(&n, (start, end))| n != (end - start) as i64),
                Rule::Position => places.position(|(&n, (&start, _))| n != base.wrapping_add(start as i64)),
                Rule::Known(known) => numbers.iter().position(|n| !known.contains(n)),
            };
            count = broken.unwrap_or(count);
        }
        count
    }

    /// Whether the string of each of the first `count` records has its stored checksum.
    pub fn check(&self, buf: &[u8], count: usize, out: &Columns, row: usize, fits: &mut [i64]) {
        for (i, fits) in fits.iter_mut().enumerate().take(count) {
            *fits = self.checksum.is_none_or(|(text, stored)| {
                let bytes = string(buf, out.get(text, row + i), out.get(text + 1, row + i));
                bytes.is_some_and(|b| b.is_empty() || i64::from(crc31(b)) == out.get(stored, row + i))
            }) as i64;
        }
    }
}

/// Run one step that is no branch for the records `rows` of a block.
fn one(step: &Step, buf: &[u8], block: &mut Block, rows: Range<usize>, out: &mut Columns, row: usize) {
    let first = row + rows.start;
    match *step {
        Step::Run(size) => {
            for i in rows {
                block.runs[i] = block.pass(i, Some(size)).unwrap_or(NOWHERE);
            }
        }
        Step::Number { column, offset, width, signed, little } => {
            let numbers = match width {
                1 => numbers::<1>,
                2 => numbers::<2>,
                4 => numbers::<4>,
                _ => numbers::<8>,
            };
            let out = &mut out.numbers[column * out.stride + first..][..rows.len()];
            numbers(buf, &block.runs[rows], offset, signed, little, out);
        }
        Step::Fixed { column, offset, length } => {
            for (k, i) in rows.enumerate() {
                let found = if block.ok[i] { (block.runs[i] + offset, length) } else { (0, 0) };
                out.set_string(column, first + k, found);
            }
        }
        Step::Take { column, length, add } => {
            for (k, i) in rows.enumerate() {
                let at = block.ends[i];
                block.pass(
                    i,
                    match length {
                        Some(length) => {
                            out.get(length, first + k).checked_add(add).and_then(|n| usize::try_from(n).ok())
                        }
                        None => block.limits[i].checked_sub(at),
                    },
                );
                out.set_string(column, first + k, (at, block.ends[i] - at));
            }
        }
        Step::If { .. } => (),
    }
}

/// Read a number of `N` bytes of each run; 0 if there is none.
fn numbers<const N: usize>(buf: &[u8], runs: &[usize], offset: usize, signed: bool, little: bool, out: &mut [i64]) {
    let unused = 64 - 8 * N as u32;
    for (out, run) in out.iter_mut().zip(runs) {
        let mut all = [0; 8];
        if let Some(bytes) = buf.get(run + offset..).and_then(|bytes| bytes.first_chunk::<N>()) {
            all[..N].copy_from_slice(bytes);
        }
        let high = if little { u64::from_le_bytes(all) << unused } else { u64::from_be_bytes(all) };
        *out = if signed { high as i64 >> unused } else { (high >> unused) as i64 };
    }
}

/// Texts in a buffer: where each starts, and how long it is.
#[derive(Clone, Copy)]
pub struct Texts<'a, 'b> {
    buf: &'a [u8],
    pub starts: &'b [i64],
    lengths: &'b [i64],
}

impl<'a, 'b> Texts<'a, 'b> {
    /// None: the numbers of starts and lengths differ.
    pub fn of(buf: &'a [u8], starts: &'b [i64], lengths: &'b [i64]) -> Option<Texts<'a, 'b>> {
        (starts.len() == lengths.len()).then_some(Texts { buf, starts, lengths })
    }

    /// Number of texts.
    pub fn count(&self) -> usize {
        self.starts.len()
    }

    /// One text. None: it is not inside the buffer.
    #[inline]
    pub fn get(&self, row: usize) -> Option<&'a [u8]> {
        string(self.buf, *self.starts.get(row)?, *self.lengths.get(row)?)
    }
}

/// A string in a buffer; one of negative length is empty. None: it is not inside.
pub fn string(buf: &[u8], start: i64, length: i64) -> Option<&[u8]> {
    if length <= 0 {
        return Some(&[]);
    }
    let start = usize::try_from(start).ok()?;
    buf.get(start..start.checked_add(usize::try_from(length).ok()?)?)
}

/// The first eight bytes of a text, the first one lowest; zeros behind its end. Makes no call: most texts are short.
#[inline]
pub fn word(text: &[u8]) -> u64 {
    if let Some(bytes) = text.first_chunk::<8>() {
        return u64::from_le_bytes(*bytes);
    }
    match (text.first_chunk::<4>(), text.last_chunk::<4>()) {
        (Some(first), Some(last)) => {
            u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << (8 * (text.len() - 4))
        }
        _ => text.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)),
    }
}

/// Whether two texts are the same.
#[inline]
pub fn same(one: &[u8], other: &[u8]) -> bool {
    let (words, others) = (one.chunks_exact(8), other.chunks_exact(8));
    one.len() == other.len()
        && word(words.remainder()) == word(others.remainder())
        && words.zip(others).all(|(one, other)| word(one) == word(other))
}

/// Make a number of each text, by its row. None: a text is not inside the buffer, or `out` has another size.
pub fn each<T>(texts: Texts, out: &mut [T], make: impl Fn(usize, &[u8]) -> T) -> Option<()> {
    if texts.count() != out.len() {
        return None;
    }
    for (row, out) in out.iter_mut().enumerate() {
        *out = make(row, texts.get(row)?);
    }
    Some(())
}

/// CRC-32 without its top bit.
pub fn crc31(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes) & 0x7FFF_FFFF
}
