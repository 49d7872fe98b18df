//! A loom model of writers that mark partitions, and of a reader that looks for marks. It runs under every interleaving
//! of their threads with at most three preemptions. If the marks do not order two accesses to the bytes of a partition,
//! loom reports a data race.

use loom::cell::UnsafeCell;
use loom::sync::Arc;

use super::*;

/// Two partitions, each of one number, and their marks.
struct Model {
    marks: Marks,
    parts: [UnsafeCell<u64>; 2],
}

impl Model {
    fn write(&self, part: usize, number: u64) {
        self.parts[part].with_mut(|part| unsafe { *part = number });
    }

    fn read(&self, part: usize) -> u64 {
        self.parts[part].with(|part| unsafe { *part })
    }
}

fn check(run: fn(&Arc<Model>)) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        run(&Arc::new(Model { marks: Marks::new(2), parts: [UnsafeCell::new(0), UnsafeCell::new(0)] }));
    });
}

#[test]
fn each_mark_is_seen_after_its_news() {
    check(|model| {
        assert!(model.marks.take(0..2));
        model.marks.add_reader();
        let writers = [0, 1].map(|part| {
            let model = model.clone();
            loom::thread::spawn(move || {
                model.write(part, 7);
                assert_eq!(model.marks.mark(part..part + 1), 1);
            })
        });
        let mut seen = 0;
        let mut look = || {
            if model.marks.take_news().is_some() {
                let fresh = model.marks.word(0) & !seen;
                (0..2)
                    .filter(|part| fresh & (1 << part) != 0)
                    .for_each(|part| assert_eq!(model.read(part), 7));
                seen |= fresh;
            }
        };
        look();
        look();
        for writer in writers {
            writer.join().unwrap();
        }
        look();
        assert_eq!(seen, 3);
    });
}

#[test]
fn the_owner_gets_all_back_when_it_is_quiet() {
    check(|model| {
        assert!(model.marks.take(0..2));
        model.marks.add_reader();
        let others = [0, 1].map(|part| {
            let model = model.clone();
            loom::thread::spawn(move || {
                model.write(part, 7);
                match part {
                    0 => _ = model.marks.mark(0..1),
                    _ => model.marks.give_back(1..2),
                }
            })
        });
        if model.marks.are_marked(0..1) {
            assert_eq!(model.read(0), 7);
        }
        model.marks.remove_reader();
        let is_quiet = model.marks.is_quiet();
        if is_quiet {
            // A writer sets `news` after it has marked its partition, so possibly in the next round. It has no
            // other effect on the next round.
            model.marks.reset();
            (0..2).for_each(|part| model.write(part, 8));
            assert!(model.marks.take(0..1));
        }
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(model.marks.word(0), u64::from(!is_quiet));
    });
}
