//! Columns of texts and numbers: numbering the different ones, copying them, what was met before.

use std::hash::BuildHasher;

use crate::table::string;

/// A quick hash with a secret that is another one each time: both halves of a product with it are kept, so
/// that no difference of texts cancels out whatever the secret is.
struct Mixer(u64, u64);

impl Mixer {
    fn new() -> Mixer {
        let secret = std::collections::hash_map::RandomState::new();
        Mixer(secret.hash_one(0) | 1, secret.hash_one(1))
    }

    fn number(&self, number: u64) -> u64 {
        let product = u128::from(number ^ self.1) * u128::from(self.0);
        product as u64 ^ (product >> 64) as u64
    }

    fn of(&self, text: &[u8]) -> u64 {
        let mut hash = text.len() as u64;
        let mut mix = |bytes: [u8; 8]| hash = self.number(hash ^ u64::from_le_bytes(bytes));
        let mut words = text.chunks_exact(8);
        for word in &mut words {
            mix(word.try_into().unwrap_or_default());
        }
        let rest = words.remainder();
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            mix(last);
        }
        self.number(hash)
    }
}

/// Number the different texts of a column by first appearance. leaders: the first row of each number.
/// Returns how many there are. A text of negative length counts as an empty one.
pub fn dictionary(buf: &[u8], starts: &[i64], lengths: &[i64], ids: &mut [i64], leaders: &mut [i64]) -> Option<i64> {
    let count = starts.len();
    if lengths.len() != count || ids.len() != count || leaders.len() != count {
        return None;
    }
    let mixer = Mixer::new();
    let mut slots: Vec<u32> = Vec::new();
    let mut known: Vec<&[u8]> = Vec::new();
    let mut latest = 0;
    for row in 0..count {
        let text = string(buf, starts[row], lengths[row])?;
        if known.get(latest).is_some_and(|known| *known == text) {
            ids[row] = latest as i64;
            continue;
        }
        if known.len() * 2 >= slots.len() {
            slots = vec![u32::MAX; (slots.len() * 4).max(64)];
            for (id, text) in known.iter().enumerate() {
                let at = free(&slots, mixer.of(text), |_| false);
                slots[at] = id as u32;
            }
        }
        let at = free(&slots, mixer.of(text), |id| known[id as usize] == text);
        if slots[at] == u32::MAX {
            slots[at] = u32::try_from(known.len()).ok()?;
            leaders[known.len()] = row as i64;
            known.push(text);
        }
        ids[row] = i64::from(slots[at]);
        latest = slots[at] as usize;
    }
    Some(known.len() as i64)
}

/// The slot of a hash, or the first free one behind it.
fn free(slots: &[u32], hash: u64, same: impl Fn(u32) -> bool) -> usize {
    let mask = slots.len() - 1;
    let mut at = hash as usize & mask;
    while slots[at] != u32::MAX && !same(slots[at]) {
        at = (at + 1) & mask;
    }
    at
}

/// Copy texts to places of another buffer. None: one of them does not fit.
pub fn copy(buf: &[u8], starts: &[i64], lengths: &[i64], target: &mut [u8], places: &[i64]) -> Option<i64> {
    if starts.len() != lengths.len() || starts.len() != places.len() {
        return None;
    }
    for ((&start, &length), &place) in starts.iter().zip(lengths).zip(places) {
        let text = string(buf, start, length)?;
        if !text.is_empty() {
            let place = usize::try_from(place).ok()?;
            target.get_mut(place..place.checked_add(text.len())?)?.copy_from_slice(text);
        }
    }
    Some(starts.len() as i64)
}

/// A number for each text: its seed, its length, and its first `words` words of eight bytes, the last one
/// filled up with zeros, each multiplied with another power of `factor`; then mixed.
pub fn text_numbers(
    (buf, starts, lengths): (&[u8], &[i64], &[i64]),
    seeds: &[i64],
    words: usize,
    factor: u64,
    out: &mut [i64],
) -> Option<i64> {
    let count = starts.len();
    if lengths.len() != count || seeds.len() != count || out.len() != count {
        return None;
    }
    for row in 0..count {
        let text = string(buf, starts[row], lengths[row])?;
        let mut mixed = seeds[row] as u64 ^ text.len() as u64;
        let mut power = factor;
        for part in text.chunks(8).take(words) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            mixed = mixed.wrapping_add(u64::from_le_bytes(word).wrapping_mul(power));
            power = power.wrapping_mul(factor);
        }
        mixed = (mixed ^ mixed >> 32).wrapping_mul(factor);
        out[row] = (mixed ^ mixed >> 29) as i64;
    }
    Some(count as i64)
}

/// A number was not met, and nothing stood in its place.
const NEW: u8 = 0;
/// Another one stood there.
const OTHER: u8 = 1;
/// It was met before, in these or in those before.
const AGAIN: u8 = 2;

/// Which numbers were met before. Each has a place among the marks, by its highest bits, and the latest
/// one there stays. Returns how many were met.
pub fn meet(numbers: &[i64], marks: &mut [i32], told: &mut [u8]) -> Option<i64> {
    let bits = marks.len().checked_ilog2().filter(|bits| *bits > 0 && marks.len().is_power_of_two())?;
    if told.len() != numbers.len() {
        return None;
    }
    let place = |number: u64| (number >> (64 - bits)) as usize;
    let mark = |number: u64| (number as u32 | 1) as i32;
    for (&number, told) in numbers.iter().zip(&mut *told) {
        let stands = marks[place(number as u64)];
        *told = if stands == 0 { NEW } else { OTHER + (stands == mark(number as u64)) as u8 };
    }
    // these among themselves: a table of all of them, half empty
    let mut slots = vec![u32::MAX; (2 * numbers.len() + 2).next_power_of_two()];
    let (mixer, mask) = (Mixer::new(), slots.len() - 1); // a producer chooses numbers, and none of their slots
    let mut again = 0;
    for row in 0..numbers.len() {
        let number = numbers[row] as u64;
        let mut at = mixer.number(number) as usize & mask;
        while slots[at] != u32::MAX && numbers[slots[at] as usize] != numbers[row] {
            at = (at + 1) & mask;
        }
        if slots[at] != u32::MAX {
            told[row] = AGAIN;
        } else {
            slots[at] = u32::try_from(row).ok()?;
        }
        marks[place(number)] = mark(number);
        again += i64::from(told[row] == AGAIN);
    }
    Some(again)
}

/// Whether each row goes on where the one before it in its group ended: `next` of the group, -1: anywhere.
/// count: how far a row moves its group; first: where a group began, or -1. At the first row that does
/// not go on, or is negative, `next` is set back; what `first` was given by the rows before stays. Returns how many rows went on: all, or none.
pub fn go_on(
    group: &[i64],
    (value, count): (&[i64], &[i64]),
    next: &mut [i64],
    first: &mut [i64],
    before: &mut [i64],
) -> Option<i64> {
    let rows = group.len();
    if value.len() != rows || count.len() != rows || before.len() != rows || first.len() != next.len() {
        return None;
    }
    if group.iter().any(|&g| usize::try_from(g).map_or(true, |g| g >= next.len())) {
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
