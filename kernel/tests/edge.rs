//! Calls as Python makes them, and such as it never makes: whatever arrays and numbers there are, nothing
//! panics behind the edge and no byte beside the arrays is written. `.ci/sanitize` runs it under a sanitizer.
#![allow(unsafe_code)]

use mqstore_kernel::{mqstore_run, Span, WRONG};
use proptest::collection::vec;
use proptest::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};

static PANICKED: AtomicBool = AtomicBool::new(false);
const BYTES: usize = 160;
const TABLE: &[i64] = &[1, 16, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 4, 1, 0, 0, 0, 0];
const FRAME: &[i64] = &[0, 4, 8, 0, 16, 7];

/// Bytes of each array, and the numbers, of an operation over n rows.
fn call(operation: i64, n: usize) -> (Vec<usize>, Vec<i64>) {
    let (n8, rows) = (8 * n, n as i64);
    match operation {
        1 => (vec![8 * TABLE.len(), 8 * FRAME.len(), BYTES, 8 + 6 * n8], vec![3, 0, 0, 1, rows]),
        2 => (vec![8 * TABLE.len(), BYTES, n8, n8, 5 * n8], vec![3]),
        3 => (vec![BYTES, n8, n8, 4 * n], vec![]),
        4 => (vec![5, 32, BYTES, n8, n8, 12 * n8, n, 8], vec![4]),
        5 => (vec![BYTES, n8, n8, 4 * n, n8], vec![]),
        6 => (vec![BYTES, n8, n8, n8, n8], vec![]),
        7 => (vec![BYTES, n8, n8, BYTES, n8], vec![]),
        8 => (vec![BYTES, n8, n8, n8], vec![4, 31]),
        9 => (vec![n8, 64, n], vec![]),
        10 => (vec![n8, n8, n8, BYTES, BYTES, n8], vec![]),
        11 => (vec![n8, 3, BYTES, 24, 6 * n8, n8, BYTES], vec![0]),
        _ => (vec![n8; 3], vec![rows; 3]),
    }
}

/// Mostly places and lengths that lie inside.
fn word() -> impl Strategy<Value = i64> {
    prop_oneof![300 => 0..12i64, 1 => -3..BYTES as i64 + 9, 1 => any::<i64>()]
}

/// What of a call is spoilt: which array or number, and what it becomes.
fn spoilt() -> impl Strategy<Value = (usize, bool, i64)> {
    (0..12usize, any::<bool>(), prop_oneof![-40..40i64, any::<i64>(), Just(i64::MAX)])
}

proptest! {
    #[test]
    fn any_call(
        operation in -1..14i64,
        n in 0..24usize,
        mut words in vec(word(), 1200),
        spoilt in prop_oneof![1 => vec(spoilt(), 0..1), 1 => vec(spoilt(), 1..4)],
    ) {
        let (mut sizes, mut numbers) = call(operation, n);
        let (mut places, mut next) = (Vec::new(), 8);
        for size in &sizes {
            places.push(next);
            next += size.next_multiple_of(8) + 48; // further apart than any of them grows
        }
        let frame = places[0] / 8;
        for (at, known) in [(places[0] / 8, TABLE), (places[1] / 8, FRAME)] {
            if operation == 1 || (operation == 2 && at == frame) {
                words[at..at + known.len()].copy_from_slice(known);
            }
        }
        if operation == 4 {
            words[places[0] / 8] = i64::from_le_bytes(*b"abcab\0\0\0");
            words[places[1] / 8..][..4].copy_from_slice(&[1, 1, 1, 2]);
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
