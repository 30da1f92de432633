//! Tables of steps over bulk bytes, and a handful of loops over texts (buffer, starts, lengths). The kernel knows no
//! RocketMQ: construct schemas say what a record is, and Python makes the tables of them.
//!
//! The edge to Python is the only place with `unsafe`. A call names an operation, arrays and numbers. Arrays become
//! slices here, once, and a panic becomes an error. All else is safe Rust over bytes that nobody vouches for.

pub mod chain;
pub mod lines;
pub mod rows;
pub mod table;
pub mod text;

use std::cell::Cell;
use table::{each, Texts};

/// Grows when an operation changes: Python uses no library with another number.
pub const VERSION: i64 = 7;
/// The answer if the arguments make no sense.
pub const WRONG: i64 = -1;

/// An array of the caller: address and size.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Span {
    pub at: *mut u8,
    pub bytes: usize,
}

/// The arrays and numbers of a call. Python keeps the arrays alive and unchanged meanwhile.
pub struct Args<'a> {
    spans: &'a [Span],
    numbers: &'a [i64],
    /// Arrays that were given out for reading, and for writing: a bit for each.
    given: Cell<(u64, u64)>,
}

pub use edge::mqstore_run;

#[allow(unsafe_code)]
mod edge {
    use super::{Args, Span, WRONG};
    use std::panic::{catch_unwind, AssertUnwindSafe};

    /// Element types of arrays.
    ///
    /// # Safety
    /// Every pattern of bits is a valid value.
    pub unsafe trait Plain {}
    // SAFETY: these are integers
    unsafe impl Plain for u8 {}
    unsafe impl Plain for i32 {}
    unsafe impl Plain for i64 {}

    impl<'a> Args<'a> {
        fn span<T: Plain>(&self, i: usize) -> Option<(*mut T, usize)> {
            let Span { at, bytes } = *self.spans.get(i)?;
            let good = bytes % size_of::<T>() == 0 && bytes <= isize::MAX as usize;
            let at = if bytes == 0 { std::ptr::NonNull::<T>::dangling().as_ptr() } else { at.cast::<T>() };
            (good && !at.is_null() && at.is_aligned()).then_some((at, bytes / size_of::<T>()))
        }

        /// Array i, for reading. None: no such array, a wrong size or alignment, or `get_mut` has given it out.
        pub fn get<T: Plain>(&self, i: usize) -> Option<&'a [T]> {
            let (at, count) = self.span(i)?;
            let (read, written) = self.given.get();
            if written >> i & 1 != 0 {
                return None;
            }
            self.given.set((read | 1 << i, written));
            // SAFETY: the caller's array; no slice for writing shares a byte with it: `get_mut` sees to that
            Some(unsafe { std::slice::from_raw_parts(at, count) })
        }

        /// Array i, for writing. None: as `get`, or it shares a byte with another array, or was given out already.
        pub fn get_mut<T: Plain>(&self, i: usize) -> Option<&'a mut [T]> {
            let (at, count) = self.span::<T>(i)?;
            let (begin, end) = (at as usize, at as usize + count * size_of::<T>());
            let apart = |other: &Span| {
                let at = other.at as usize;
                other.bytes == 0 || begin == end || at >= end || at.saturating_add(other.bytes) <= begin
            };
            let (read, written) = self.given.get();
            if (read | written) >> i & 1 != 0 || !self.spans.iter().enumerate().all(|(k, other)| k == i || apart(other))
            {
                return None;
            }
            self.given.set((read, written | 1 << i));
            // SAFETY: the caller's array, and no other slice of this call shares a byte with it
            Some(unsafe { std::slice::from_raw_parts_mut(at, count) })
        }
    }

    /// Run one operation. Returns its answer, or -1 if the arguments make no sense.
    ///
    /// # Safety
    /// The spans are arrays of the caller that stay alive, and that nobody else writes, during the call.
    #[no_mangle]
    pub unsafe extern "C" fn mqstore_run(
        operation: i64, spans: *const Span, spans_n: usize, numbers: *const i64, numbers_n: usize,
    ) -> i64 {
        if (spans.is_null() && spans_n > 0) || (numbers.is_null() && numbers_n > 0) || spans_n > 64 || numbers_n > 64 {
            return WRONG;
        }
        let spans = if spans_n == 0 { &[] } else { unsafe { std::slice::from_raw_parts(spans, spans_n) } };
        let numbers = if numbers_n == 0 { &[] } else { unsafe { std::slice::from_raw_parts(numbers, numbers_n) } };
        let args = Args { spans, numbers, given: std::cell::Cell::default() };
        let work = AssertUnwindSafe(|| super::run(operation, &args));
        catch_unwind(work).ok().flatten().unwrap_or(WRONG)
    }
}

impl Args<'_> {
    fn number(&self, i: usize) -> Option<i64> {
        self.numbers.get(i).copied()
    }

    fn size(&self, i: usize) -> Option<usize> {
        usize::try_from(self.number(i)?).ok()
    }
}

/// The operations by number. The comments name arrays and, behind a semicolon, numbers. Texts: buffer, starts, lengths.
fn run(operation: i64, args: &Args) -> Option<i64> {
    let texts = |i: usize| Texts::of(args.get(i)?, args.get(i + 1)?, args.get(i + 2)?);
    let done = |_| 0;
    match operation {
        0 => Some(VERSION),
        1 => follow_chain(args),
        2 => decode(args),
        // texts, out: CRC-32 of each text, without its top bit
        3 => each(texts(0)?, args.get_mut(3)?, |_, text| table::crc31(text) as i32).map(done),
        // names, their lengths, texts, values, odd, all; names with values
        4 => {
            let (texts, known) = (texts(2)?, text::Names::of(args.get(0)?, args.get(1)?)?);
            let mut values = text::Values { columns: args.get_mut(5)?, names: args.size(0)?, texts: texts.count() };
            let mut items = text::Items::of(&known);
            items.add(texts, 0, &mut values, args.get_mut(6)?)?;
            args.get_mut::<i64>(7)?.first_mut().map(|all| *all = items.all as i64).map(done)
        }
        // texts, seeds (none: 0), out: hash of each text, -1 if it is not UTF-8
        5 => {
            let seeds = args.get::<i32>(3)?;
            let seed = |row: usize| seeds.get(row).map_or(0, |&seed| seed as u32);
            let hash = |row, text: &[u8]| text::java_hash(seed(row), text).map_or(-1, i64::from);
            each(texts(0)?, args.get_mut(4)?, hash).map(done)
        }
        // texts, ids, leaders
        6 => rows::Numbering::default().add(texts(0)?, 0, args.get_mut(3)?, args.get_mut(4)?),
        // texts, target, places
        7 => rows::copy(texts(0)?, args.get_mut(3)?, args.get(4)?),
        // texts, out; words, factor
        8 => {
            let (words, factor) = (args.size(0)?, args.number(1)? as u64);
            each(texts(0)?, args.get_mut(3)?, |_, text| rows::sum(text, words, factor) as i64).map(done)
        }
        // numbers, marks, told
        9 => rows::meet(args.get(0)?, args.get_mut(1)?, args.get_mut(2)?),
        // group, value, count, next, first, before
        10 => {
            let rows = (args.get(0)?, args.get(1)?, args.get(2)?);
            rows::go_on(rows, args.get_mut(3)?, args.get_mut(4)?, args.get_mut(5)?)
        }
        // pieces, constants, buffer, bounds, columns, ends, out; first
        11 => {
            let (pieces, constants, buf, bounds) = (args.get(0)?, args.get(1)?, args.get(2)?, args.get(3)?);
            let (columns, ends) = (args.get(4)?, args.get_mut(5)?);
            let template = lines::Template { pieces, constants, buf, bounds, columns, rows: ends.len() };
            Some(template.write(args.size(0)?, ends, args.get_mut(6)?))
        }
        // hashes, previous, newest; number of the first item
        12 => rows::link(args.get(0)?, args.get(1)?, args.get_mut(2)?, args.number(0)?),
        // groups, columns to add up, columns whose ends are wanted, out; number of groups
        13 => rows::tally(args.get(0)?, args.get(1)?, args.get(2)?, args.get_mut(3)?, args.size(0)?),
        _ => None,
    }
}

/// table, frame, buffer, out; columns, base, at, crc, stride. out: end of the last record, then the columns.
/// With notes: names, their lengths, out of the notes, odd; further numbers as in `chain::Notes`.
fn follow_chain(args: &Args) -> Option<i64> {
    let table = table::Table::of(args.get(0)?, args.size(0)?)?;
    let frame = chain::Frame::of(args.get(1)?)?;
    let (buf, base, crc) = (args.get(2)?, args.number(1)?, args.number(3)? != 0);
    let (end, out) = args.get_mut::<i64>(3)?.split_first_mut()?;
    let (chain, stride) = (chain::Chain { table: &table, frame: &frame, buf, base, crc }, args.size(4)?);
    let (names, mut notes) = (text::Names::of(args.get(4).unwrap_or(&[]), args.get(5).unwrap_or(&[]))?, None);
    if let Some(numbers) = args.numbers.get(5..).filter(|numbers| !numbers.is_empty()) {
        let odd = args.get_mut::<u8>(7).filter(|odd| odd.len() == stride)?;
        notes = Some(chain::Notes::of(&table, &names, numbers, args.get_mut(6)?, odd)?);
    }
    let (rows, at) = chain::follow(&chain, args.size(2)?, out, stride, notes)?;
    *end = at as i64;
    Some(rows as i64)
}

/// table, buffer, starts, limits, out; columns. out: ends, ok, then the columns. Returns how many records are ok.
fn decode(args: &Args) -> Option<i64> {
    let table = table::Table::of(args.get(0)?, args.size(0)?)?;
    let (buf, starts, limits) = (args.get::<u8>(1)?, args.get::<i64>(2)?, args.get::<i64>(3)?);
    let count = starts.len();
    let (own, fields) = args.get_mut::<i64>(4)?.split_at_mut_checked(count.checked_mul(2)?)?;
    if limits.len() != count {
        return None;
    }
    let mut columns = table::Columns::of(fields, table.columns, count)?;
    let (mut block, mut good) = (table::Block::default(), 0);
    for first in (0..count).step_by(table::BLOCK) {
        let some = table::BLOCK.min(count - first);
        for i in 0..some {
            // a negative start is put behind every limit
            block.starts[i] = usize::try_from(starts[first + i]).unwrap_or(usize::MAX >> 1);
            block.limits[i] = usize::try_from(limits[first + i]).unwrap_or(0).min(buf.len());
        }
        table.run(buf, &mut block, some, &mut columns, first);
        for i in 0..some {
            (own[first + i], own[count + first + i]) = (block.ends[i] as i64, i64::from(block.ok[i]));
            good += i64::from(block.ok[i]);
        }
    }
    Some(good)
}
