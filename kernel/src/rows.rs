//! Columns of texts and numbers: number the different ones, copy them, find those met before.

use std::collections::HashMap;
use std::hash::BuildHasher;

// a new secret each time: producers choose texts and numbers, but not which of them collide
use foldhash::fast::RandomState;

use crate::table::{same, word, Texts};

/// The different texts of a column so far, numbered by first appearance.
#[derive(Default)]
pub struct Numbering<'a> {
    known: HashMap<&'a [u8], i64, RandomState>,
    latest: (&'a [u8], i64),
}

impl<'a> Numbering<'a> {
    /// Number the texts of further rows, the first of which is `row`. leaders: the first row of each number. Returns
    /// how many numbers there are now. A text of negative length counts as an empty one.
    pub fn add(&mut self, texts: Texts<'a, '_>, row: usize, ids: &mut [i64], leaders: &mut [i64]) -> Option<i64> {
        if texts.count() != ids.len() {
            return None;
        }
        for (i, id) in ids.iter_mut().enumerate() {
            let (text, next) = (texts.get(i)?, self.known.len());
            if next == 0 || !same(self.latest.0, text) {
                self.latest = (text, *self.known.entry(text).or_insert(next as i64));
                if self.known.len() > next {
                    *leaders.get_mut(next)? = (row + i) as i64;
                }
            }
            *id = self.latest.1;
        }
        Some(self.known.len() as i64)
    }
}

/// Copy texts to places of another buffer. None: a text does not fit.
pub fn copy(texts: Texts, target: &mut [u8], places: &[i64]) -> Option<i64> {
    for (row, &place) in places.iter().enumerate() {
        let text = texts.get(row)?;
        if !text.is_empty() {
            let place = usize::try_from(place).ok()?;
            target.get_mut(place..place.checked_add(text.len())?)?.copy_from_slice(text);
        }
    }
    (places.len() == texts.count()).then_some(places.len() as i64)
}

/// Sum of the first `words` words of eight bytes of a text, the last word filled up with zeros, each multiplied by the
/// next power of `factor`.
pub fn sum(text: &[u8], words: usize, factor: u64) -> u64 {
    let mut power = 1u64;
    text.chunks(8).take(words).fold(0, |sum: u64, part| {
        power = power.wrapping_mul(factor);
        sum.wrapping_add(word(part).wrapping_mul(power))
    })
}

/// Tell which numbers were met before. The highest bits of a number give its place among the marks; the latest mark
/// stays. told: 0: no mark was there, 1: a mark of another number, 2: the number was met. Returns how many were met.
pub fn meet(numbers: &[i64], marks: &mut [i32], told: &mut [u8]) -> Option<i64> {
    let bits = marks.len().checked_ilog2().filter(|bits| *bits > 0 && marks.len().is_power_of_two())?;
    if told.len() != numbers.len() {
        return None;
    }
    let place = |number: u64| (number >> (64 - bits)) as usize;
    let mark = |number: u64| (number as u32 | 1) as i32;
    for (&number, told) in numbers.iter().zip(&mut *told) {
        let stands = marks[place(number as u64)];
        *told = if stands == 0 { 0 } else { 1 + (stands == mark(number as u64)) as u8 };
    }
    // these numbers among themselves: a hash table of row numbers, at most half full, as small as it can be
    let (mut slots, mixer) = (vec![u32::MAX; (2 * numbers.len() + 2).next_power_of_two()], RandomState::default());
    let mut again = 0;
    for (row, (&number, told)) in numbers.iter().zip(told).enumerate() {
        let mut at = mixer.hash_one(number) as usize & (slots.len() - 1);
        while slots[at] != u32::MAX && numbers[slots[at] as usize] != number {
            at = (at + 1) & (slots.len() - 1);
        }
        if slots[at] == u32::MAX {
            slots[at] = u32::try_from(row).ok()?;
        } else {
            *told = 2;
        }
        marks[place(number as u64)] = mark(number as u64);
        again += i64::from(*told == 2);
    }
    Some(again)
}

/// Whether each row continues where the row before it in its group ended: at `next` of the group; -1: anywhere. count:
/// how far a row moves its group. first: where a group began, or -1. At the first row that does not, or is negative,
/// `next` is set back, but not `first`. Returns how many rows continued: all, or none.
pub fn go_on(
    (group, value, count): (&[i64], &[i64], &[i64]), next: &mut [i64], first: &mut [i64], before: &mut [i64],
) -> Option<i64> {
    let rows = group.len();
    let fits = value.len() == rows && count.len() == rows && before.len() == rows && first.len() == next.len();
    if !fits || group.iter().any(|&g| usize::try_from(g).map_or(true, |g| g >= next.len())) {
        return None;
    }
    for row in 0..rows {
        let g = group[row] as usize;
        if value[row] < 0 || (next[g] != -1 && next[g] != value[row]) {
            for row in (0..row).rev() {
                next[group[row] as usize] = before[row];
            }
            return Some(0);
        }
        before[row] = next[g];
        next[g] = value[row].wrapping_add(count[row]);
        if first[g] == -1 {
            first[g] = value[row];
        }
    }
    Some(rows as i64)
}

/// Count rows in groups. added, ended: columns, each with a number for every row. out: of each group the number of
/// rows, the sum of each column of `added`, the least and the greatest of each column of `ended`, merged with what is
/// there already. Returns the number of rows. None: a row is in none of the groups, or `out` has another size.
pub fn tally(group: &[i64], added: &[i64], ended: &[i64], out: &mut [i64], groups: usize) -> Option<i64> {
    let rows = group.len();
    let columns = |all: &[i64]| (all.len() % rows.max(1) == 0).then_some(all.len() / rows.max(1));
    let sums = columns(added)?;
    let width = 1 + sums + 2 * columns(ended)?;
    if width.checked_mul(groups)? != out.len() {
        return None;
    }
    for (row, &group) in group.iter().enumerate() {
        let group = usize::try_from(group).ok().filter(|&group| group < groups)?;
        let (counted, ends) = out[group * width..][..width].split_at_mut(1 + sums);
        counted[0] += 1;
        for (sum, column) in counted[1..].iter_mut().zip(added.chunks_exact(rows)) {
            *sum = sum.wrapping_add(column[row]);
        }
        for (ends, column) in ends.chunks_exact_mut(2).zip(ended.chunks_exact(rows)) {
            (ends[0], ends[1]) = (ends[0].min(column[row]), ends[1].max(column[row]));
        }
    }
    Some(rows as i64)
}

/// Link items, numbered from `first` on: each is put in front of the chain of its slot, if it names the newest item
/// there as the one before it. Returns the number of items up to one that does not, or that has a negative hash.
pub fn link(hashes: &[i32], previous: &[i32], newest: &mut [i32], first: i64) -> Option<i64> {
    let slots = u32::try_from(newest.len()).unwrap_or(u32::MAX);
    if hashes.len() != previous.len() || slots == 0 {
        return None;
    }
    for (row, (&hash, &previous)) in hashes.iter().zip(previous).enumerate() {
        match u32::try_from(hash).map(|hash| &mut newest[(hash % slots) as usize]) {
            Ok(slot) if *slot == previous => *slot = first.wrapping_add(row as i64) as i32,
            _ => return Some(row as i64),
        }
    }
    Some(hashes.len() as i64)
}
