//! Calls as Python makes them, and such as it never makes: whatever the bytes, tables, arrays and numbers are,
//! nothing panics behind the edge, no byte beside the arrays is written, and there is an end. `.ci/sanitize` runs
//! it under a sanitizer. What is found is held against numpy and construct (tests/formats/test_kernel.py).
#![allow(unsafe_code)]

use mqstore_kernel::table::WIDTH;
use mqstore_kernel::{mqstore_run, Span, WRONG};
use proptest::collection::vec;
use proptest::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};

static PANICKED: AtomicBool = AtomicBool::new(false);
const BYTES: usize = 160;
/// A number of four bytes, twelve bytes, and as many as are told.
const TABLE: [i64; 18] = [1, 16, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 4, 1, 0, 0, 0, 0];
const FRAME: [i64; 6] = [0, 4, 8, 0, 16, 7];
const NOTED: i64 = 20;

/// Bytes of each array, and the numbers, of an operation over n rows. `NOTED` is the first one with notes, the
/// next two are those with items alone, with numbers alone.
fn call(operation: i64, n: usize, table: usize) -> (Vec<usize>, Vec<i64>) {
    let (n8, rows) = (8 * n, n as i64);
    match operation {
        1 => (vec![table, 48, BYTES, 8 + 6 * n8], vec![3, 0, 0, 1, rows]),
        2 => (vec![table, BYTES, n8, n8, 5 * n8], vec![3]),
        3 => (vec![BYTES, n8, n8, 4 * n], vec![]),
        4 => (vec![5, 32, BYTES, n8, n8, 12 * n8, n, 8], vec![4]),
        5 => (vec![BYTES, n8, n8, 4 * n, n8], vec![]),
        6 => (vec![BYTES, n8, n8, n8, n8], vec![]),
        7 => (vec![BYTES, n8, n8, BYTES, n8], vec![]),
        8 => (vec![BYTES, n8, n8, n8], vec![4, 31]),
        9 => (vec![n8, 64, n], vec![]),
        10 => (vec![n8, n8, n8, BYTES, BYTES, n8], vec![]),
        11 => (vec![n8, 3, BYTES, 24, 6 * n8, n8, BYTES], vec![0]),
        12 => (vec![4 * n, 4 * n, BYTES], vec![1]),
        13 => (vec![n8, 2 * n8, n8, 40 * 12], vec![12]),
        NOTED => {
            (vec![table, 48, BYTES, 8 + 6 * n8, 5, 32, 16 + 19 * n8, n], vec![3, 0, 0, 1, rows, 0, 1, 4, 2, 31, 32])
        }
        21 => (vec![table, 48, BYTES, 8 + 6 * n8, 5, 32, 16 + 12 * n8, n], vec![3, 0, 0, 1, rows, -1, 1, 4, 0, 0, -1]),
        22 => (vec![table, 48, BYTES, 8 + 6 * n8, 5, 32, 16 + 2 * n8, n], vec![3, 0, 0, 1, rows, 1, -1, 0, 0, 0, -1]),
        _ => (vec![n8; 3], vec![rows; 3]),
    }
}

/// Mostly places and lengths that lie inside.
fn word() -> impl Strategy<Value = i64> {
    prop_oneof![300 => 0..12i64, 1 => -3..BYTES as i64 + 9, 1 => any::<i64>()]
}

/// A table of steps that Python would make, or one that nobody would.
fn table() -> impl Strategy<Value = Vec<i64>> {
    let astray = prop_oneof![0..40i64, -3..3i64, any::<i64>()];
    let row = (prop_oneof![0..15i64, any::<i64>()], vec(astray, WIDTH - 1));
    let rows = vec(row.prop_map(|(step, rest)| [vec![step], rest].concat()), 0..5);
    prop_oneof![Just(TABLE.to_vec()), rows.prop_map(|rows| rows.concat())]
}

/// What of a call is spoilt: which array or number, and what it becomes.
fn spoilt() -> impl Strategy<Value = (usize, bool, i64)> {
    (0..12usize, any::<bool>(), prop_oneof![-40..40i64, any::<i64>(), Just(i64::MAX)])
}

proptest! {
    #[test]
    fn any_call(
        operation in prop_oneof![-1..15i64, 1..3i64, NOTED..NOTED + 3],
        n in 0..24usize,
        mut words in vec(word(), 1600),
        table in table(),
        spoilt in prop_oneof![vec(spoilt(), 0..1), vec(spoilt(), 1..4)],
    ) {
        let (mut sizes, mut numbers) = call(operation, n, 8 * table.len());
        let (mut places, mut next) = (Vec::new(), 8);
        for size in &sizes {
            places.push(next);
            next += size.next_multiple_of(8) + 48; // further apart than any of them grows
        }
        let (names, lengths) = ([i64::from_le_bytes(*b"abcab\0\0\0")], [1, 1, 1, 2]);
        let known: &[(usize, &[i64])] = match operation {
            1 => &[(0, &table), (1, &FRAME)],
            2 => &[(0, &table)],
            4 => &[(0, &names), (1, &lengths)],
            NOTED.. => &[(0, &table), (1, &FRAME), (4, &names), (5, &lengths)],
            _ => &[],
        };
        for &(array, known) in known {
            words[places[array] / 8..][..known.len()].copy_from_slice(known);
        }
        if matches!(operation, 1 | NOTED..) { // an item to begin with: its size, magic code and position
            let item = [i64::from_le_bytes([0, 0, 0, 24, 0, 0, 0, 7]), 0];
            words[places[2] / 8..][..2].copy_from_slice(&item);
        }
        for (which, array, value) in spoilt {
            if array {
                let i = which % sizes.len();
                if value % 3 == 0 { places[i] = places[which * 7 % sizes.len()] } // two of them overlap
                sizes[i] = sizes[i].saturating_add_signed((value % 40) as isize).min(8 * words.len() - places[i]);
            } else if !numbers.is_empty() {
                let i = which % numbers.len();
                numbers[i] = value;
            }
        }
        let mut after = words.clone();
        let first: *mut u8 = after.as_mut_ptr().cast();
        let spans: Vec<Span> =
            places.iter().zip(&sizes).map(|(&at, &bytes)| Span { at: first.wrapping_add(at), bytes }).collect();
        let operation = if operation >= NOTED { 1 } else { operation };
        std::panic::set_hook(Box::new(|_| PANICKED.store(true, Ordering::Relaxed)));
        // SAFETY: the spans lie in `after`, which nobody else touches meanwhile
        let answer = unsafe { mqstore_run(operation, spans.as_ptr(), spans.len(), numbers.as_ptr(), numbers.len()) };
        let _ = std::panic::take_hook();
        prop_assert!(!PANICKED.swap(false, Ordering::Relaxed));
        prop_assert!(answer >= WRONG);
        let bytes = |words: &[i64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        for (at, (before, after)) in bytes(&words).into_iter().zip(bytes(&after)).enumerate() {
            let inside = places.iter().zip(&sizes).any(|(&place, &size)| (place..place + size).contains(&at));
            prop_assert!(inside || before == after, "byte {} was written", at);
        }
    }
}
