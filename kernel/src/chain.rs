//! Follow the items of a log, one behind the other, as long as each is plain.

use std::ops::Range;

use crate::rows::{self, Numbering};
use crate::table::{each, Block, Columns, Table, Texts, BLOCK};
use crate::text::{self, Items, Names, Values};

/// Where size, magic code and own position of an item are, and where the record begins in it.
pub struct Frame {
    size: usize,
    magic: usize,
    /// None: the position of an item is not checked.
    position: Option<usize>,
    payload: usize,
    smallest: usize,
    magics: Vec<u32>,
}

impl Frame {
    /// From five numbers in the order of the fields, -1 for no position, and the magic codes. None: they make no sense.
    pub fn of(numbers: &[i64]) -> Option<Frame> {
        let place = |i: usize| usize::try_from(*numbers.get(i)?).ok().filter(|&n| n < 1 << 20);
        Some(Frame {
            size: place(0)?,
            magic: place(1)?,
            position: if numbers.get(2) == Some(&-1) { None } else { Some(place(2)?) },
            payload: place(3)?,
            smallest: place(4)?.max(1), // nobody stands still
            magics: numbers.get(5..)?.iter().map(|&magic| magic as u32).collect(),
        })
    }

    /// Size of the item at byte `at`, if it lies inside the buffer, and names its position where it has to.
    fn item(&self, buf: &[u8], base: i64, at: usize) -> Option<usize> {
        let item = buf.get(at..).filter(|item| item.len() >= self.smallest)?;
        let size = u32::from_be_bytes(*item.get(self.size..)?.first_chunk()?) as usize;
        let magic = u32::from_be_bytes(*item.get(self.magic..)?.first_chunk()?);
        let own = base.wrapping_add(at as i64);
        let position = match self.position {
            Some(place) => i64::from_be_bytes(*item.get(place..)?.first_chunk()?),
            None => own,
        };
        let known = position == own && self.magics.contains(&magic);
        (known && (self.smallest..=item.len()).contains(&size)).then_some(size)
    }
}

/// How far ahead of the chain bytes are read, and in which steps: lines of a processor's cache.
const AHEAD: usize = 2048;
const LINE: usize = 64;

/// Touch what lies ahead. Where the next item begins is known only when this one has come out of memory; the lines in
/// between can be fetched together. Returns how far it got.
fn meet(buf: &[u8], from: usize, at: usize) -> usize {
    let (begin, end) = (from.max(at), (at + AHEAD).min(buf.len()));
    let lines = buf.get(begin..end).unwrap_or_default().iter().step_by(LINE);
    std::hint::black_box(lines.fold(0, |seen, byte| seen ^ byte));
    begin + end.saturating_sub(begin).next_multiple_of(LINE)
}

/// Columns in front of those of the table: where a record begins, where it ends, whether its CRC fits.
pub const OWN: usize = 3;

/// The items of a buffer that begins at log position `base`: frame of an item, steps and rules of its record, and
/// whether checksums are checked.
pub struct Chain<'a> {
    pub table: &'a Table,
    pub frame: &'a Frame,
    pub buf: &'a [u8],
    pub base: i64,
    pub crc: bool,
}

/// What is noted of two strings of each record while its bytes are at hand. Of the `numbered` string the different
/// values are numbered. Of the `itemized` string the items are noted, and numbers made of their values: `rows::sum` of
/// the first value, `text::plain_hashes` of each value without the byte `apart`. Either string, and a sum of no words,
/// may be left out. told: how many values are numbered, and which names occur.
pub struct Notes<'a> {
    numbered: Option<usize>,
    numbering: Numbering<'a>,
    ids: &'a mut [i64],
    leaders: &'a mut [i64],
    itemized: Option<usize>,
    items: Items<'a>,
    values: Values<'a>,
    odd: &'a mut [u8],
    sums: &'a mut [i64],
    sum: (usize, u64),
    hashes: &'a mut [i64],
    apart: u8,
    told: &'a mut [i64],
}

impl<'a> Notes<'a> {
    /// numbers: columns of both strings, -1 if left out; number of names with values; words and factor of the sum; the
    /// byte `apart` of hashes, -1 for no hashes. out: `told`, then ids, leaders, sums, values, hashes, as far as they
    /// are made. None: the numbers make no sense.
    pub fn of(
        table: &Table, names: &'a Names, numbers: &[i64], out: &'a mut [i64], odd: &'a mut [u8],
    ) -> Option<Notes<'a>> {
        let size = |i: usize| usize::try_from(*numbers.get(i)?).ok();
        let column = |i: usize| match *numbers.get(i)? {
            -1 => Some(None),
            number => usize::try_from(number).ok().filter(|&c| c + 1 < table.columns).map(Some),
        };
        let (stride, named, words, mut out) = (odd.len(), size(2)?, size(3)?, out);
        let (numbered, itemized) = (column(0)?, column(1)?);
        let rows = |made: bool| Some(if made { stride } else { 0 });
        if named == 0 && words > 0 {
            return None;
        }
        let mut cut = |size: Option<usize>| {
            let (part, rest) = std::mem::take(&mut out).split_at_mut_checked(size?)?;
            out = rest;
            Some(part)
        };
        let apart = u8::try_from(*numbers.get(5)?);
        let notes = Notes {
            numbered,
            numbering: Numbering::default(),
            told: cut(Some(2))?,
            ids: cut(rows(numbered.is_some()))?,
            leaders: cut(rows(numbered.is_some()))?,
            itemized,
            items: Items::of(names),
            sums: cut(rows(words > 0))?,
            sum: (words, *numbers.get(4)? as u64),
            values: Values { columns: cut(named.checked_mul(3 * stride))?, names: named, texts: stride },
            hashes: cut(if apart.is_ok() { named.checked_mul(stride) } else { Some(0) })?,
            apart: apart.unwrap_or(0),
            odd,
        };
        out.is_empty().then_some(notes)
    }

    fn add(&mut self, buf: &'a [u8], columns: &Columns, rows: Range<usize>) -> Option<()> {
        if let Some(column) = self.numbered {
            let (texts, ids) = (columns.texts(buf, column, rows.clone())?, &mut self.ids[rows.clone()]);
            self.told[0] = self.numbering.add(texts, rows.start, ids, self.leaders)?;
        }
        let Some(column) = self.itemized else { return Some(()) };
        let texts = columns.texts(buf, column, rows.clone())?;
        self.items.add(texts, rows.start, &mut self.values, &mut self.odd[rows.clone()])?;
        self.told[1] = self.items.all as i64;
        let stride = self.values.texts;
        let value = |i: usize| {
            let (starts, lengths) = self.values.columns[3 * i * stride..].split_at(stride);
            Texts::of(buf, &starts[rows.clone()], &lengths[rows.clone()])
        };
        if !self.sums.is_empty() {
            each(value(0)?, &mut self.sums[rows.clone()], |_, text| rows::sum(text, self.sum.0, self.sum.1) as i64)?;
        }
        for (i, hashes) in self.hashes.chunks_exact_mut(stride.max(1)).enumerate() {
            text::plain_hashes(value(i)?, self.apart, &mut hashes[rows.clone()])?;
        }
        Some(())
    }
}

/// Follow the chain from byte `at` on, until an item is not plain or not whole, or `stride` items are found. Returns
/// how many, and the byte behind them.
pub fn follow<'a>(
    chain: &Chain<'a>, mut at: usize, out: &mut [i64], stride: usize, mut notes: Option<Notes<'a>>,
) -> Option<(usize, usize)> {
    let &Chain { table, frame, buf, base, crc } = chain;
    let (own, fields) = out.split_at_mut_checked(OWN.checked_mul(stride)?)?;
    let mut columns = Columns::of(fields, table.columns, stride)?;
    let mut block = Block::default();
    let (mut rows, mut met) = (0, at);
    loop {
        let (room, mut count, mut end) = (BLOCK.min(stride - rows), 0, at);
        while count < room {
            met = meet(buf, met, end);
            let Some(size) = frame.item(buf, base, end) else { break };
            block.starts[count] = end + frame.payload.min(size);
            block.limits[count] = end + size;
            end += size;
            count += 1;
        }
        table.run(buf, &mut block, count, &mut columns, rows);
        let plain = table.plain(&block, count, base, &columns, rows);
        for i in 0..plain {
            own[rows + i] = block.starts[i] as i64;
            own[stride + rows + i] = block.ends[i] as i64;
        }
        if crc {
            table.check(buf, plain, &columns, rows, &mut own[2 * stride + rows..][..plain]);
        }
        if let Some(notes) = &mut notes {
            notes.add(buf, &columns, rows..rows + plain)?;
        }
        if plain > 0 {
            at = block.limits[plain - 1];
        }
        rows += plain;
        if plain < BLOCK {
            return Some((rows, at));
        }
    }
}
