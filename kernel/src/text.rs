//! Texts in a buffer: items with names, hashes. A text is a start and a length.

use crate::table::{self, each, same, Texts};

/// Bytes below 3 end a name (1) or an item (2), or should not occur (0).
const LOW: u64 = 0x7D7D_7D7D_7D7D_7D7D;
const SEVEN: u64 = 0x7F7F_7F7F_7F7F_7F7F;

/// What is odd about a text of items.
pub mod odd {
    /// A byte 0.
    pub const NUL: u8 = 1;
    /// An item without a name, a value, or the separator between them.
    pub const MALFORMED: u8 = 2;
    /// An item with more than one separator of name and value.
    pub const RUN_TOGETHER: u8 = 4;
    /// Two items have the same name, with a value or without, or there are too many items to tell.
    pub const REPEATED: u8 = 8;
    /// The last item has no end.
    pub const OPEN: u8 = 16;
}

/// Names that are looked for: up to 64.
pub struct Names<'a>(Vec<&'a [u8]>);

impl<'a> Names<'a> {
    /// From names one behind the other, and their lengths.
    pub fn of(mut blob: &'a [u8], lengths: &[i64]) -> Option<Names<'a>> {
        let mut names = Vec::new();
        for &length in lengths {
            let (name, rest) = blob.split_at_checked(usize::try_from(length).ok()?)?;
            names.push(name);
            blob = rest;
        }
        (names.len() <= 64).then_some(Names(names))
    }

    fn number(&self, name: &[u8]) -> Option<usize> {
        self.0.iter().position(|known| same(known, name))
    }
}

/// Values of the first `names` names, int64[names, 3, texts]: start, length, how many.
pub struct Values<'a> {
    pub columns: &'a mut [i64],
    pub names: usize,
    pub texts: usize,
}

impl Values<'_> {
    fn note(&mut self, name: usize, text: usize, start: usize, length: usize) {
        if name < self.names {
            let at = 3 * name * self.texts + text;
            if length > 0 {
                self.columns[at] = start as i64;
                self.columns[at + self.texts] = length as i64;
            }
            self.columns[at + 2 * self.texts] += 1;
        }
    }
}

/// The names of at most so many items of a text are compared with one another.
const COMPARED: usize = 64;

/// The text that is being scanned: what is odd about it, and of how many items the names are kept.
struct Text<'a> {
    bytes: &'a [u8],
    row: usize,
    start: usize,
    odd: u8,
    seen: u64,
    kept: usize,
}

/// Shapes are kept for texts of at most so many words: longer texts are scanned each.
const WORDS: usize = 64;
/// At most so many shapes are kept.
const SHAPES: usize = 8;

/// What texts of one length share that differ only in the values of their items. Nothing is odd about them.
struct Shape {
    length: usize,
    /// Of each word: mask of bytes in names and separators (0xFF), and these bytes.
    words: Vec<(u64, u64)>,
    /// Number of a name, start and length of its value.
    values: Vec<(usize, usize, usize)>,
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let rest = bytes.get(at..).unwrap_or_default();
    let behind = u64::MAX.checked_shl(8 * rest.len().min(8) as u32).unwrap_or(0);
    table::word(rest) | behind
}

fn low(word: u64) -> u64 {
    !(((word & SEVEN) + LOW) | word) & !SEVEN
}

impl Shape {
    /// The shape of a text that is not odd. None: it is empty or too long.
    fn of(bytes: &[u8], names: &Names) -> Option<Shape> {
        let (mut mask, mut values, mut begin) = (vec![0; bytes.len()], Vec::new(), 0);
        for item in bytes.split_inclusive(|&byte| byte == 2).take_while(|_| bytes.len() <= 8 * WORDS) {
            let value = begin + item.iter().position(|&byte| byte == 1)? + 1;
            let end = begin + item.len() - 1;
            mask[begin..value].fill(0xFF);
            mask[end] = 0xFF;
            values.extend(names.number(&bytes[begin..value - 1]).map(|number| (number, value, end - value)));
            begin = end + 1;
        }
        let words = (0..bytes.len()).step_by(8).map(|at| (word(&mask, at), word(bytes, at) & word(&mask, at)));
        (begin > 0).then(|| Shape { length: bytes.len(), words: words.collect(), values })
    }

    fn fits(&self, bytes: &[u8]) -> bool {
        let other = |word: u64, &(fixed, same): &(u64, u64)| ((word & fixed) ^ same) | (low(word) & !fixed);
        let words = bytes.chunks_exact(8).zip(&self.words);
        let rest = self.words.get(bytes.len() / 8).map(|shape| other(word(bytes, bytes.len() & !7), shape));
        bytes.len() == self.length
            && words.fold(rest.unwrap_or(0), |all, (bytes, shape)| all | other(table::word(bytes), shape)) == 0
    }
}

/// Scans texts of items; shapes are kept from one text to the next.
pub struct Items<'a> {
    names: &'a Names<'a>,
    spans: [(u32, u32); COMPARED],
    shapes: Vec<Shape>,
    latest: usize,
    oldest: usize,
    missed: u32,
    /// Which of the names have occurred, a bit for each.
    pub all: u64,
}

impl<'a> Items<'a> {
    /// Before any text.
    pub fn of(names: &'a Names<'a>) -> Items<'a> {
        Items { names, spans: [(0, 0); COMPARED], shapes: Vec::new(), latest: 0, oldest: 0, missed: 0, all: 0 }
    }

    /// Scan the texts of further rows, the first of which is `row`. odd: of each text. None: the columns are for other
    /// names or rows.
    pub fn add(&mut self, texts: Texts, row: usize, values: &mut Values, odd: &mut [u8]) -> Option<()> {
        let room = values.names.min(self.names.0.len()).checked_mul(3)?.checked_mul(values.texts)?;
        if values.columns.len() != room || texts.count() != odd.len() {
            return None;
        }
        for (i, column) in values.columns.chunks_exact_mut(values.texts.max(1)).enumerate() {
            column[row..row + odd.len()].fill(if i % 3 == 1 { -1 } else { 0 });
        }
        for (i, odd) in odd.iter_mut().enumerate() {
            let bytes = texts.get(i)?;
            let start = if bytes.is_empty() { 0 } else { texts.starts[i] as usize };
            *odd = self.one(bytes, start, row + i, values);
        }
        Some(())
    }

    fn one(&mut self, bytes: &[u8], start: usize, row: usize, values: &mut Values) -> u8 {
        let fits = |shape: &Shape| shape.fits(bytes);
        let known = match self.shapes.get(self.latest) {
            Some(shape) if fits(shape) => Some(self.latest),
            // while no known shape has fitted for long, none is tried, and few are kept
            _ if self.missed < 64 => self.shapes.iter().position(fits),
            _ => None,
        };
        if let Some(known) = known {
            (self.latest, self.missed) = (known, 0);
            for &(name, begin, length) in &self.shapes[known].values {
                values.note(name, row, start + begin, length);
            }
            return 0;
        }
        self.missed = self.missed.saturating_add(1);
        let odd = self.scan(bytes, start, row, values);
        let kept = odd == 0 && (self.missed < 64 || self.missed % 16 == 0);
        if let Some(shape) = Some(bytes).filter(|_| kept).and_then(|bytes| Shape::of(bytes, self.names)) {
            self.latest = self.oldest;
            self.oldest = (self.oldest + 1) % SHAPES;
            if self.latest < self.shapes.len() {
                self.shapes[self.latest] = shape;
            } else {
                self.shapes.push(shape);
            }
        }
        odd
    }

    fn scan(&mut self, bytes: &[u8], start: usize, row: usize, values: &mut Values) -> u8 {
        let mut text = Text { bytes, row, start, odd: 0, seen: 0, kept: 0 };
        let (mut begin, mut middle) = (0, None);
        for at in (0..bytes.len()).step_by(8) {
            let mut low = low(word(bytes, at));
            while low != 0 {
                let place = at + (low.trailing_zeros() / 8) as usize;
                low &= low - 1;
                match bytes[place] {
                    0 => text.odd |= odd::NUL,
                    1 if middle.is_none() => middle = Some(place),
                    1 => text.odd |= odd::RUN_TOGETHER,
                    _ => {
                        self.item(&mut text, begin, middle, place, values);
                        (begin, middle) = (place + 1, None);
                    }
                }
            }
        }
        if begin < bytes.len() {
            text.odd |= odd::OPEN;
            self.item(&mut text, begin, middle, bytes.len(), values);
        }
        text.odd
    }

    /// An item from `begin` to `end`; without a separator all of it is the name.
    fn item(&mut self, text: &mut Text, begin: usize, middle: Option<usize>, end: usize, values: &mut Values) {
        let name = &text.bytes[begin..middle.unwrap_or(end)];
        if name.is_empty() {
            text.odd |= if begin < end { odd::MALFORMED } else { 0 };
            return;
        }
        // has an earlier item the same name?
        let bit = 1u64 << ((name.len() * 11 + usize::from(name[0]) * 7 + usize::from(name[name.len() / 2]) * 3) & 63);
        let mut known = self.spans[..text.kept].iter().map(|&(begin, end)| &text.bytes[begin as usize..end as usize]);
        if text.kept == COMPARED || (text.seen & bit != 0 && known.any(|known| known == name)) {
            text.odd |= odd::REPEATED;
        }
        if let Some(span) = self.spans.get_mut(text.kept) {
            *span = (begin as u32, (begin + name.len()) as u32);
            (text.seen, text.kept) = (text.seen | bit, text.kept + 1);
        }
        let value = middle.map_or(end, |middle| middle + 1);
        text.odd |= if value == end { odd::MALFORMED } else { 0 };
        if let Some(number) = self.names.number(name).filter(|_| middle.is_some()) {
            self.all |= 1 << number;
            values.note(number, text.row, text.start + value, end - value);
        }
    }
}

/// Neighbours in a word are added up: eight characters to four pairs, to two fours, to their sum.
const FOLDS: [(u32, u64, u64); 3] =
    [(8, 0x00FF_00FF_00FF_00FF, 31), (16, 0x0000_FFFF_0000_FFFF, 31 * 31), (32, 0xFFFF_FFFF, 31 * 31 * 31 * 31)];

/// `String.hashCode` of a text that follows one with the hash `seed`. see: gets the words of the text. None: not all
/// ASCII.
#[inline]
fn ascii_hash(seed: u32, text: &[u8], mut see: impl FnMut(u64)) -> Option<u32> {
    let (mut hash, mut seen) = (seed, 0);
    let mut add = |word: u64, length: usize| {
        see(word);
        seen |= word;
        let last = word << (8 * (8 - length));
        let sum = FOLDS.iter().fold(last, |sum, &(bits, mask, weight)| (sum & mask) * weight + (sum >> bits & mask));
        let power = if length == 8 { const { 31u32.wrapping_pow(8) } } else { 31u32.wrapping_pow(length as u32) };
        hash = hash.wrapping_mul(power).wrapping_add(sum as u32);
    };
    let words = text.chunks_exact(8);
    let rest = words.remainder();
    words.for_each(|part| add(table::word(part), 8));
    if !rest.is_empty() {
        add(table::word(rest), rest.len());
    }
    (seen & !SEVEN == 0).then_some(hash)
}

/// `String.hashCode` of any text that follows one with the hash `seed`. None: not UTF-8.
pub fn java_hash(seed: u32, text: &[u8]) -> Option<u32> {
    ascii_hash(seed, text, |_| ()).or_else(|| {
        let units = std::str::from_utf8(text).ok()?.encode_utf16();
        Some(units.fold(seed, |hash, unit| hash.wrapping_mul(31).wrapping_add(u32::from(unit))))
    })
}

/// Hash of each text, -1 if it is not all ASCII, or has the byte `apart`.
pub fn plain_hashes(texts: Texts, apart: u8, out: &mut [i64]) -> Option<()> {
    let (ones, apart) = (u64::MAX / 255, u64::from(apart) * (u64::MAX / 255));
    let has = |word: u64| (word ^ apart).wrapping_sub(ones) & !(word ^ apart) & !SEVEN;
    each(texts, out, |_, text| {
        let mut found = 0;
        ascii_hash(0, text, |word| found |= has(word)).filter(|_| found == 0).map_or(-1, i64::from)
    })
}
