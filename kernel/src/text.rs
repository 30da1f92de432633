//! Texts in a buffer: items with names, hashes. A text is a start and a length.

use crate::table::string;

/// Bytes below 3 end a name (1), an item (2), or should not be there (0).
const LOW: u64 = 0x7D7D_7D7D_7D7D_7D7D;
const SEVEN: u64 = 0x7F7F_7F7F_7F7F_7F7F;

/// What is odd about a text of items.
pub mod odd {
    /// A byte 0.
    pub const NUL: u8 = 1;
    /// An item without a name, a value, or what stands between them.
    pub const MALFORMED: u8 = 2;
    /// An item with more than one separator of name and value.
    pub const RUN_TOGETHER: u8 = 4;
    /// Two items have the same name, with a value or without, or there are too many to say.
    pub const REPEATED: u8 = 8;
    /// The last item has no end.
    pub const OPEN: u8 = 16;
}

/// Names that are looked for: up to 64.
pub struct Names<'a> {
    names: Vec<&'a [u8]>,
    /// By length, first and last byte: a name, or 64.
    slots: Vec<u8>,
    /// There are names that share a slot.
    crowded: bool,
}

fn slot(name: &[u8]) -> usize {
    let (first, last) = (name.first().copied().unwrap_or(0), name.last().copied().unwrap_or(0));
    (name.len() * 37 + usize::from(first) * 5 + usize::from(last)) & 0xFF
}

impl<'a> Names<'a> {
    /// From names one behind the other, and their lengths.
    pub fn of(mut blob: &'a [u8], lengths: &[i64]) -> Option<Names<'a>> {
        let mut found = Names { names: Vec::new(), slots: vec![64; 256], crowded: false };
        for &length in lengths {
            let (name, rest) = blob.split_at_checked(usize::try_from(length).ok()?)?;
            let slot = &mut found.slots[slot(name)];
            found.crowded |= *slot != 64;
            *slot = found.names.len() as u8;
            found.names.push(name);
            blob = rest;
        }
        (found.names.len() <= 64).then_some(found)
    }

    fn number(&self, name: &[u8]) -> Option<usize> {
        let guess = usize::from(self.slots[slot(name)]);
        if *self.names.get(guess)? == name {
            return Some(guess);
        }
        if self.crowded {
            return self.names.iter().position(|known| *known == name);
        }
        None
    }
}

/// Where values of the first names are told: start, length, how many; a column of `texts` numbers each.
pub struct Values<'a> {
    /// int64[names, 3, texts].
    pub columns: &'a mut [i64],
    /// How many of the names have columns.
    pub names: usize,
    /// How many texts there are.
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

/// Most items of a text whose names are compared with one another.
const COMPARED: usize = 64;

struct Text<'a, 'b> {
    bytes: &'a [u8],
    row: usize,
    start: usize,
    odd: u8,
    present: u64,
    seen: u64,
    items: usize,
    spans: &'b mut [(u32, u32); COMPARED],
}

impl Text<'_, '_> {
    fn item(&mut self, begin: usize, middle: Option<usize>, end: usize, names: &Names, values: &mut Values) {
        if begin == end {
            return;
        }
        self.compare(begin, middle.unwrap_or(end));
        let Some(middle) = middle.filter(|&middle| middle > begin) else {
            self.odd |= odd::MALFORMED;
            return;
        };
        if middle + 1 == end {
            self.odd |= odd::MALFORMED;
        }
        self.named(begin, middle, end, names, values);
    }

    fn named(&mut self, begin: usize, middle: usize, end: usize, names: &Names, values: &mut Values) {
        if let Some(number) = names.number(&self.bytes[begin..middle]) {
            self.present |= 1 << number;
            values.note(number, self.row, self.start + middle + 1, end - middle - 1);
        }
    }

    /// Has an item before this one the same name? Without a separator all of it is the name.
    fn compare(&mut self, begin: usize, end: usize) {
        let name = &self.bytes[begin..end];
        if name.is_empty() {
            return;
        }
        let bit = 1u64 << ((name.len() * 11 + usize::from(name[0]) * 7 + usize::from(name[name.len() / 2]) * 3) & 63);
        if self.items >= COMPARED {
            self.odd |= odd::REPEATED;
            return;
        }
        if self.seen & bit != 0 {
            let twice = self.spans[..self.items].iter().any(|&(b, e)| &self.bytes[b as usize..e as usize] == name);
            self.odd |= if twice { odd::REPEATED } else { 0 };
        }
        self.seen |= bit;
        self.spans[self.items] = (begin as u32, end as u32);
        self.items += 1;
    }

    fn scan(&mut self, names: &Names, values: &mut Values) {
        let (mut begin, mut middle) = (0, None);
        let length = self.bytes.len();
        for at in (0..length).step_by(8) {
            let mut low = low(word(self.bytes, at));
            while low != 0 {
                let place = at + (low.trailing_zeros() / 8) as usize;
                low &= low - 1;
                match self.bytes[place] {
                    0 => self.odd |= odd::NUL,
                    1 if middle.is_none() => middle = Some(place),
                    1 => self.odd |= odd::RUN_TOGETHER,
                    _ => {
                        self.item(begin, middle, place, names, values);
                        (begin, middle) = (place + 1, None);
                    }
                }
            }
        }
        if begin < length {
            self.odd |= odd::OPEN;
            self.item(begin, middle, length, names, values);
        }
    }
}

/// Words of the longest texts whose shape is kept: longer ones are looked through each.
const WORDS: usize = 64;
/// How many shapes are kept.
const SHAPES: usize = 8;

/// What texts of one length have in common that differ in the values of their items alone. Nothing is
/// odd about them.
struct Shape {
    length: usize,
    /// Bytes of names and separators are 0xFF in `fixed`, and as they are in `same`.
    fixed: [u64; WORDS],
    same: [u64; WORDS],
    present: u64,
    /// Number of a name, where its value begins, how long it is.
    values: Vec<(usize, usize, usize)>,
}

fn word(bytes: &[u8], at: usize) -> u64 {
    match bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => {
            let mut last = [0xFF; 8];
            if let Some(rest) = bytes.get(at..) {
                last[..rest.len()].copy_from_slice(rest);
            }
            u64::from_le_bytes(last)
        }
    }
}

fn low(word: u64) -> u64 {
    !(((word & SEVEN) + LOW) | word) & !SEVEN
}

impl Shape {
    /// The shape of a text about which nothing is odd. None: it is too long.
    fn of(bytes: &[u8], names: &Names) -> Option<Shape> {
        if bytes.len() > 8 * WORDS {
            return None;
        }
        let mut mask = [0u8; 8 * WORDS];
        let mut shape =
            Shape { length: bytes.len(), fixed: [0; WORDS], same: [0; WORDS], present: 0, values: Vec::new() };
        let mut begin = 0;
        for item in bytes.split_inclusive(|&byte| byte == 2) {
            let value = begin + item.iter().position(|&byte| byte == 1)? + 1;
            let end = begin + item.len() - 1;
            mask[begin..value].fill(0xFF);
            mask[end] = 0xFF;
            if let Some(number) = names.number(&bytes[begin..value - 1]) {
                shape.present |= 1 << number;
                shape.values.push((number, value, end - value));
            }
            begin = end + 1;
        }
        for at in 0..bytes.len().div_ceil(8) {
            shape.fixed[at] = word(&mask, 8 * at);
            shape.same[at] = word(bytes, 8 * at) & shape.fixed[at];
        }
        Some(shape)
    }

    fn fits(&self, bytes: &[u8]) -> bool {
        if bytes.len() != self.length {
            return false;
        }
        let mut other = 0;
        let words = bytes.chunks_exact(8);
        let rest = word(bytes, bytes.len() & !7);
        for ((bytes, fixed), same) in words.zip(&self.fixed).zip(&self.same) {
            let word = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
            other |= ((word & fixed) ^ same) | (low(word) & !fixed);
        }
        let last = bytes.len() / 8;
        if last < WORDS {
            other |= ((rest & self.fixed[last]) ^ self.same[last]) | (low(rest) & !self.fixed[last]);
        }
        other == 0
    }
}

/// Look through texts of items. odd: of each text. Returns which names there are at all.
pub fn items(
    names: &Names,
    buf: &[u8],
    starts: &[i64],
    lengths: &[i64],
    values: &mut Values,
    odd: &mut [u8],
) -> Option<u64> {
    let count = values.texts;
    let room = values.names.min(names.names.len()).checked_mul(3)?.checked_mul(count)?;
    if starts.len() != count || lengths.len() != count || odd.len() != count || values.columns.len() != room {
        return None;
    }
    for (i, column) in values.columns.chunks_exact_mut(count.max(1)).enumerate() {
        column.fill(if i % 3 == 1 { -1 } else { 0 });
    }
    let mut spans = [(0, 0); COMPARED];
    let mut shapes: Vec<Shape> = Vec::new();
    let (mut latest, mut oldest, mut missed) = (0, 0, 0);
    let mut all = 0;
    for row in 0..count {
        let bytes = string(buf, starts[row], lengths[row]).filter(|bytes| bytes.len() < 1 << 31)?;
        let start = if bytes.is_empty() { 0 } else { starts[row] as usize };
        let fits = |shape: &Shape| shape.fits(bytes);
        let known = match shapes.get(latest) {
            Some(shape) if fits(shape) => Some(latest),
            // where each text has a shape of its own, none is looked for
            _ if missed < 64 => shapes.iter().position(fits),
            _ => None,
        };
        if let Some(known) = known {
            (latest, missed) = (known, 0);
            for &(name, begin, length) in &shapes[known].values {
                values.note(name, row, start + begin, length);
            }
            odd[row] = 0;
            continue;
        }
        missed += 1;
        let mut text = Text { bytes, row, start, odd: 0, present: 0, seen: 0, items: 0, spans: &mut spans };
        text.scan(names, values);
        odd[row] = text.odd;
        all |= text.present;
        if text.odd != 0 || bytes.is_empty() {
            continue;
        }
        if let Some(shape) = Shape::of(bytes, names) {
            latest = oldest;
            oldest = (oldest + 1) % SHAPES;
            if latest < shapes.len() {
                shapes[latest] = shape;
            } else {
                shapes.push(shape);
            }
        }
    }
    Some(all)
}

const POWERS: [u32; 8] = {
    let mut powers = [1u32; 8];
    let mut i = 7;
    while i > 0 {
        powers[i - 1] = powers[i].wrapping_mul(31);
        i -= 1;
    }
    powers
};

/// `String.hashCode` of a text behind what `seed` is the hash of. None: it is no UTF-8.
pub fn java_hash(seed: u32, text: &[u8]) -> Option<u32> {
    if !text.is_ascii() {
        let units = std::str::from_utf8(text).ok()?.encode_utf16();
        return Some(units.fold(seed, |h, unit| h.wrapping_mul(31).wrapping_add(u32::from(unit))));
    }
    let mut words = text.chunks_exact(8);
    let mut hash = seed;
    for word in &mut words {
        let sum = word.iter().zip(POWERS).fold(0u32, |s, (&c, p)| s.wrapping_add(u32::from(c).wrapping_mul(p)));
        hash = hash.wrapping_mul(POWERS[0].wrapping_mul(31)).wrapping_add(sum);
    }
    let rest = words.remainder().iter();
    Some(rest.fold(hash, |h, &c| h.wrapping_mul(31).wrapping_add(u32::from(c))))
}

/// Hash of each text behind its seed (none: 0); odd: those that are no UTF-8. Returns how many are odd.
pub fn hashes(
    buf: &[u8],
    starts: &[i64],
    lengths: &[i64],
    seeds: &[i32],
    out: &mut [i32],
    odd: &mut [u8],
) -> Option<i64> {
    let count = starts.len();
    if lengths.len() != count || out.len() != count || odd.len() != count || !(seeds.is_empty() || seeds.len() == count)
    {
        return None;
    }
    let mut left = 0;
    for row in 0..count {
        let seed = seeds.get(row).map_or(0, |&seed| seed as u32);
        let hash = java_hash(seed, string(buf, starts[row], lengths[row])?);
        out[row] = hash.unwrap_or(0) as i32;
        odd[row] = hash.is_none() as u8;
        left += i64::from(hash.is_none());
    }
    Some(left)
}
