use super::*;

fn cut(partitions: usize) -> Partitioned {
    Partitioned::new((0..12_u32).collect(), partitions).unwrap()
}

#[test]
fn only_equal_partitions_are_cut() {
    for partitions in [0, 5, 13] {
        assert_eq!(Partitioned::new(vec![1_u8; 12], partitions).unwrap_err(), [1; 12]);
    }
    let empty = Partitioned::new(Vec::<u64>::new(), 3).unwrap();
    assert_eq!((empty.len(), empty.partitions(), empty.is_empty()), (0, 3, true));
    assert!(empty.take(2..3).unwrap().as_mut_slice::<u64>().unwrap().is_empty());
}

#[test]
fn a_partition_has_one_writer_until_it_is_marked_or_given_back() {
    let mut memory = cut(4);
    let mut first = memory.take(0..1).unwrap();
    assert!(memory.take(0..1).is_none() && memory.take(0..4).is_none() && memory.take(4..5).is_none());
    first.as_mut_slice::<u32>().unwrap().copy_from_slice(&[7; 3]);
    assert!(first.span_mut(0..13).is_none(), "it touches the next partition");
    assert!(memory.as_mut_slice::<u32>().is_none() && !memory.begin());
    drop(first);
    assert_eq!(memory.as_mut_slice::<u32>().unwrap()[..4], [7, 7, 7, 3]);
    let rest = memory.take(1..4).unwrap();
    memory.take(0..1).unwrap().mark_all();
    assert!(memory.take(0..1).is_none(), "it is marked");
    assert_eq!(memory.read::<u32>(0..1).unwrap(), [7; 3]);
    assert!(memory.read::<u32>(0..2).is_none());
    rest.mark_all();
    assert_eq!(memory.read::<u32>(2..4).unwrap(), [6, 7, 8, 9, 10, 11]);
    assert!(memory.begin() && !memory.are_marked(0..1));
}

#[test]
fn a_writer_marks_its_partitions_one_by_one() {
    let mut memory = cut(4);
    let mut writer = memory.take(1..4).unwrap();
    assert_eq!((writer.total(), writer.partitions()), (48, 4));
    assert!(writer.span_mut(0..13).is_none() && writer.span_mut(47..49).is_none());
    writer.span_mut(20..30).unwrap().fill(0);
    writer.mark(2..3);
    writer.mark(2..3);
    assert!(writer.span_mut(23..25).is_none() && writer.span_mut(24..24).is_some());
    assert!(writer.as_mut_slice::<u32>().is_none() && writer.as_slice::<u32>().is_none());
    drop(writer);
    assert!(memory.are_marked(2..3) && memory.take(1..2).is_some());
    assert!(memory.begin());
}

#[test]
fn a_writer_that_has_marked_all_leaves_later_rounds_alone() {
    let mut memory = cut(2);
    let mut old = memory.take(0..2).unwrap();
    old.mark(0..2);
    assert!(memory.begin());
    let mut new = memory.take(0..2).unwrap();
    assert!(old.span_mut(0..1).is_none());
    old.mark(0..1);
    assert!(!memory.are_marked(0..1));
    drop(old);
    assert!(memory.take(0..1).is_none() && new.span_mut(0..48).is_some());
}

#[test]
fn a_reader_gets_each_run_once() {
    let mut memory = Partitioned::new(vec![1_u8; 200], 200).unwrap();
    let mut marked = memory.marked();
    assert!(!marked.has_news() && marked.next_run().is_none());
    let mark = |parts: Range<usize>| memory.take(parts).unwrap().mark_all();
    mark(60..130);
    mark(3..4);
    assert!(marked.has_news() && !marked.has_news());
    assert_eq!([marked.next_run(), marked.next_run(), marked.next_run()], [Some(3..4), Some(60..130), None]);
    mark(0..3);
    mark(4..60);
    assert_eq!([marked.next_run(), marked.next_run(), marked.next_run()], [Some(0..3), Some(4..60), None]);
    assert_eq!(marked.bytes(0..130).unwrap(), [1; 130]);
    assert!(marked.bytes(129..131).is_none() && marked.bytes(199..201).is_none());
    mark(130..200);
    assert_eq!([marked.next_run(), marked.next_run()], [Some(130..200), None]);
    assert!(!memory.begin(), "a reader is left");
    drop(marked);
    assert!(memory.begin());
}

/// The reader does not search all partitions before a marked one: with a million partitions that are marked from the
/// last to the first, it would look at ten thousand words for each.
#[test]
fn a_reader_begins_at_the_first_word_with_news() {
    let memory = Partitioned::new(vec![1_u8; 1000], 1000).unwrap();
    let mut marked = memory.marked();
    assert!(marked.next_run().is_none());
    for part in (0..1000).rev() {
        memory.take(part..part + 1).unwrap().mark_all();
        assert!(marked.has_news());
        assert_eq!(marked.first, part / 64);
        assert_eq!((marked.next_run(), marked.next_run()), (Some(part..part + 1), None));
        assert_eq!(marked.first, marked.seen.len());
    }
    assert!(!marked.has_news());
}

#[test]
fn the_memory_outlives_its_owner_and_comes_back_to_it() {
    let memory = cut(2);
    let mut writer = memory.take(0..1).unwrap();
    let memory = memory.into_memory().expect_err("a writer is left");
    let marked = memory.marked();
    memory.take(1..2).unwrap().mark_all();
    drop(memory);
    writer.as_mut_slice::<u32>().unwrap().fill(1);
    writer.mark_all();
    assert_eq!(marked.bytes(0..4).unwrap(), 1_u32.to_ne_bytes());
    drop(marked);
    let memory = cut(3);
    memory.take(1..2).unwrap().mark_all();
    let vec = memory.into_memory().unwrap().into_vec::<u32>().unwrap();
    assert_eq!(vec, (0..12).collect::<Vec<_>>());
}

#[test]
fn threads_write_their_partitions_while_a_reader_looks() {
    let mut memory = Partitioned::new(vec![0_usize; 128], 64).unwrap();
    let rounds: usize = if cfg!(miri) { 3 } else { 200 };
    for round in 1..=rounds {
        assert!(memory.begin());
        let mut marked = memory.marked();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let parts: Vec<_> = (0..16)
                    .map(|part| memory.take(part * 4 + thread..part * 4 + thread + 1).unwrap())
                    .collect();
                scope.spawn(move || {
                    for mut part in parts {
                        part.as_mut_slice().unwrap().fill(round);
                        part.mark_all();
                    }
                });
            }
            let mut count = 0;
            while count < 64 {
                let Some(run) = marked.next_run() else {
                    std::thread::yield_now();
                    continue;
                };
                count += run.len();
                let bytes = marked.bytes(run.start * 16..run.end * 16).unwrap();
                assert!(bytes.chunks(8).all(|number| number == round.to_ne_bytes()));
            }
        });
        drop(marked);
    }
}
