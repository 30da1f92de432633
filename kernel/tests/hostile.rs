//! Whatever the bytes, tables and numbers are: no panic, nothing read or written out of bounds, an end.
//! And what is found is what a plain loop finds.

use mqstore_kernel::chain::{follow, Chain, Frame, Notes, OWN};
use mqstore_kernel::lines::Template;
use mqstore_kernel::rows::{copy, go_on, link, meet, sum, Numbering};
use mqstore_kernel::table::{each, Block, Columns, Table, Texts, BLOCK, WIDTH};
use mqstore_kernel::text::{java_hash, odd, plain_hashes, Items, Names, Values};
use proptest::collection::vec;
use proptest::prelude::*;

/// Numbers that lead astray, among small ones.
fn astray() -> impl Strategy<Value = i64> {
    prop_oneof![0..40i64, -3..3i64, Just(i64::MAX), Just(i64::MIN), any::<i64>()]
}

fn rows() -> impl Strategy<Value = Vec<i64>> {
    let row = (prop_oneof![0..15i64, astray()], vec(astray(), WIDTH - 1));
    vec(row.prop_map(|(step, rest)| [vec![step], rest].concat()), 0..12).prop_map(|rows| rows.concat())
}

/// Texts that overlap one another in one buffer.
fn texts() -> impl Strategy<Value = (Vec<u8>, Vec<i64>, Vec<i64>)> {
    vec(prop_oneof![0..4u8, b'a'..b'e', any::<u8>()], 0..400).prop_flat_map(|buf| {
        let size = buf.len() as i64;
        let spans = vec((0..=size, -1..=size), 0..30).prop_map(move |spans| {
            let starts = spans.iter().map(|span| span.0).collect();
            let lengths = spans.iter().map(|span| span.1.min(size - span.0)).collect();
            (starts, lengths)
        });
        (Just(buf), spans).prop_map(|(buf, (starts, lengths))| (buf, starts, lengths))
    })
}

/// The same text by text.
fn spans<'a>(buf: &'a [u8], starts: &'a [i64], lengths: &'a [i64]) -> impl Iterator<Item = &'a [u8]> + 'a {
    starts.iter().zip(lengths).map(move |(&start, &length)| &buf[start as usize..][..length.max(0) as usize])
}

proptest! {
    #[test]
    fn any_table_over_any_bytes(
        rows in rows(),
        columns in 0..40usize,
        buf in vec(any::<u8>(), 0..300),
        starts in vec(astray(), 0..BLOCK),
        frame in vec(astray(), 0..9),
        at in 0..400usize,
        base in prop_oneof![0..40i64, any::<i64>()],
        stride in 0..40usize,
    ) {
        let Some(table) = Table::of(&rows, columns) else { return Ok(()) };
        let mut out = vec![7; (columns + OWN) * stride.max(starts.len())];
        let mut block = Block::default();
        for (i, &start) in starts.iter().enumerate() {
            block.starts[i] = usize::try_from(start).unwrap_or(usize::MAX >> 1);
            block.limits[i] = buf.len();
        }
        let mut made = Columns::of(&mut out, columns, starts.len()).unwrap();
        table.run(&buf, &mut block, starts.len(), &mut made, 0);
        for i in 0..starts.len() {
            prop_assert!(!block.ok[i] || block.ends[i] <= buf.len());
        }
        if let Some(frame) = Frame::of(&frame) {
            let chain = Chain { table: &table, frame: &frame, buf: &buf, base, crc: true };
            if let Some((count, end)) = follow(&chain, at, &mut out, stride, None) {
                prop_assert!(count <= stride && (end <= buf.len() || end == at));
            }
            let (names, mut odd) = (Names::of(b"abcab", &[1, 1, 1, 2]).unwrap(), vec![0; stride]);
            let numbers = [starts.first().copied().unwrap_or(0), base, 2, 4, base, 32];
            let mut noted = vec![0; 2 + (3 + 2 * 4) * stride];
            let notes = Notes::of(&table, &names, &numbers, &mut noted, &mut odd);
            follow(&chain, at, &mut out, stride, notes);
        }
    }

    #[test]
    fn a_chain_of_sizes_is_followed(sizes in vec(16..200usize, 0..300), cut in 0..20usize, base in -5..1000i64) {
        let mut buf = Vec::new();
        for &size in &sizes {
            let position = base + buf.len() as i64;
            let mut item = vec![0xAB; size];
            item[..4].copy_from_slice(&(size as u32).to_be_bytes());
            item[4..8].copy_from_slice(&7u32.to_be_bytes());
            item[8..16].copy_from_slice(&position.to_be_bytes());
            buf.extend(item);
        }
        let whole = buf.len();
        buf.truncate(whole.saturating_sub(cut));
        let table = Table::of(&[1, 16, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 4, 1, 0, 0, 0, 0], 3).unwrap();
        let frame = Frame::of(&[0, 4, 8, 0, 16, 7]).unwrap();
        let mut out = vec![0; (OWN + 3) * 400];
        let chain = Chain { table: &table, frame: &frame, buf: &buf, base, crc: true };
        let found = follow(&chain, 0, &mut out, 400, None).unwrap();
        let mut end = 0;
        let expected = sizes.iter().take_while(|&&size| { end += size; end <= buf.len() }).count();
        prop_assert_eq!(found.0, expected);
        prop_assert_eq!(found.1, sizes[..expected].iter().sum::<usize>());
        // sizes alone, whatever stands in the items
        let table = Table::of(&[4, 0, 0, 0, 0, 0], 2).unwrap();
        let frame = Frame::of(&[0, 4, -1, 0, 16, 7]).unwrap();
        let chain = Chain { table: &table, frame: &frame, buf: &buf, base: base + 1, crc: false };
        prop_assert_eq!(follow(&chain, 0, &mut out, 400, None).unwrap(), found);
    }

    #[test]
    fn items_are_those_of_a_plain_loop((buf, starts, lengths) in texts()) {
        let names = Names::of(b"abcab", &[1, 1, 1, 2]).unwrap();
        let count = starts.len();
        let (mut columns, mut strange) = (vec![5; 4 * 3 * count], vec![0; count]);
        let mut values = Values { columns: &mut columns, names: 4, texts: count };
        let all = Texts::of(&buf, &starts, &lengths).unwrap();
        Items::of(&names).add(all, 0, &mut values, &mut strange).unwrap();
        for (row, text) in spans(&buf, &starts, &lengths).enumerate() {
            prop_assert_eq!(strange[row] & odd::NUL != 0, text.contains(&0));
            for (number, name) in [&b"a"[..], b"b", b"c", b"ab"].iter().enumerate() {
                let head = [name, &b"\x01"[..]].concat();
                let found: Vec<&[u8]> = text.split(|&b| b == 2).filter_map(|item| item.strip_prefix(&head[..])).collect();
                prop_assert_eq!(columns[(3 * number + 2) * count + row], found.len() as i64);
                let (start, length) = (columns[3 * number * count + row], columns[(3 * number + 1) * count + row]);
                match found.iter().rev().find(|value| !value.is_empty()) {
                    Some(value) => prop_assert_eq!(&buf[start as usize..][..length as usize], *value),
                    None => prop_assert_eq!(length, -1),
                }
            }
        }
    }

    #[test]
    fn texts_are_numbered_hashed_and_copied((buf, starts, lengths) in texts()) {
        let count = starts.len();
        let all: Vec<&[u8]> = spans(&buf, &starts, &lengths).collect();
        let (mut ids, mut leaders) = (vec![0; count], vec![0; count]);
        let texts = Texts::of(&buf, &starts, &lengths).unwrap();
        let found = Numbering::default().add(texts, 0, &mut ids, &mut leaders).unwrap() as usize;
        for (row, text) in all.iter().enumerate() {
            prop_assert!((ids[row] as usize) < found);
            prop_assert_eq!(all[leaders[ids[row] as usize] as usize], *text);
        }
        for text in &all {
            let units = |text: &str| text.encode_utf16().fold(0u32, |hash, unit| hash.wrapping_mul(31).wrapping_add(unit.into()));
            prop_assert_eq!(java_hash(0, text), std::str::from_utf8(text).ok().map(units));
        }
        let mut places = Vec::new();
        let mut target = Vec::new();
        for text in &all {
            places.push(target.len() as i64);
            target.extend(*text);
        }
        let mut copied = vec![0; target.len()];
        copy(texts, &mut copied, &places).unwrap();
        prop_assert_eq!(copied, target);
    }

    #[test]
    fn lines_of_any_pieces(
        buf in vec(prop_oneof![0..4u8, b'a'..b'e', any::<u8>()], 0..60),
        pieces in vec(prop_oneof![0..9i64, astray()], 0..24),
        columns in vec(prop_oneof![0..60i64, astray()], 0..30),
        bounds in vec(any::<i64>(), 0..5),
        rows in 0..6usize,
        first in 0..9usize,
        room in 0..300usize,
    ) {
        let template =
            Template { pieces: &pieces, constants: b"abc", buf: &buf, bounds: &bounds, columns: &columns, rows };
        let (mut ends, mut out) = (vec![-7; rows], vec![0; room]);
        let next = template.write(first, &mut ends, &mut out) as usize;
        prop_assert!(next <= rows);
        for (row, &end) in ends.iter().enumerate() {
            let written = (first..next).contains(&row) && (end == -1 || (0..=room as i64).contains(&end));
            prop_assert!(written || end == -7);
        }
    }

    #[test]
    fn places_and_spans_that_lead_astray(
        buf in vec(any::<u8>(), 0..60),
        starts in vec(astray(), 3),
        lengths in vec(astray(), 3),
        places in vec(astray(), 3),
    ) {
        let texts = Texts::of(&buf, &starts, &lengths).unwrap();
        copy(texts, &mut [0; 30], &places);
        Numbering::default().add(texts, 0, &mut [0; 3], &mut [0; 3]);
        plain_hashes(texts, 32, &mut [0; 3]);
        each(texts, &mut [0; 3], |_, text| sum(text, 4, 3));
        meet(&places, &mut [0; 4], &mut [0; 3]);
        let hashes: Vec<i32> = starts.iter().map(|&start| start as i32).collect();
        link(&hashes, &hashes, &mut vec![0; buf.len()], places[0]);
        go_on((&places, &starts, &lengths), &mut [-1; 2], &mut [-1; 2], &mut [0; 3]);
    }
}
