//! Parts that other members read and write as memory of their own.

use samite_fabric::Port;
use samite_fabric::link::{Cause, Fate, RequestId, Time};
use samite_rma::{Action, Awaiting, ElementType, Error, Event, Hints, Reduction, View};

use crate::failures::kill;
use crate::world::{NEVER, PART, World, on_loopback, on_mapped_or_put, on_puts, on_shm, rank};

const GET: Action = Action::Get;
const ADD: Action = Action::GetAccumulate { op: Reduction::Sum, element: ElementType::U64 };

fn meet<P: Port>(w: &mut World<P>, at: usize, of: usize, deadline: Time) -> Result<RequestId, Error> {
    let window = w.window;
    w.call(at, |windows, link| windows.meet_member(link, window, rank(of), deadline))
}

fn view<P: Port>(w: &mut World<P>, at: usize, of: usize) -> Result<Option<View>, Error> {
    let window = w.window;
    let (mut out, windows) = w.engines[at].parts();
    windows.view(&mut out, window, rank(of))
}

fn view_of_met<P: Port>(w: &mut World<P>, at: usize, of: usize) -> View {
    let met = meet(w, at, of, NEVER).unwrap();
    w.wait(at, met);
    view(w, at, of).unwrap().unwrap()
}

fn word(view: &View, at: u64) -> u64 {
    let mut bytes = [0; 8];
    view.fetch(8 * at, GET, &mut bytes).unwrap();
    u64::from_ne_bytes(bytes)
}

/// Each rank counts in all parts, by views and in epochs at the same time.
fn counts<P: Port>(w: &mut World<P>) {
    let size = w.engines.len();
    let views: Vec<Vec<_>> =
        (0..size).map(|at| (0..size).map(|of| view_of_met(w, at, of)).collect()).collect();
    let epochs: Vec<_> = (0..size).map(|at| w.lock_all(at)).collect();
    for round in 0..10 {
        for (at, views) in views.iter().enumerate() {
            for (of, view) in views.iter().enumerate() {
                assert_eq!((view.len(), view.unit(), view.is_empty()), (PART, 8, false));
                let memory = samite_fabric::Memory::new(vec![1_u64]);
                let add = Action::Accumulate { op: Reduction::Sum, element: ElementType::U64 };
                assert_eq!(w.operate(at, epochs[at], (of, 3), add, memory, None), Ok(None));
                let mut one = 1_u64.to_ne_bytes();
                view.fetch(3 * 8, ADD, &mut one).unwrap();
                view.write(8 * (4 + at as u64), Action::Put, &(10 * round + at as u64).to_ne_bytes())
                    .unwrap();
            }
        }
        w.settle();
    }
    let closes: Vec<_> = epochs.into_iter().enumerate().map(|(at, epoch)| (at, w.close(at, epoch))).collect();
    closes.into_iter().for_each(|(at, close)| w.wait(at, close));
    for (at, views) in views.iter().enumerate() {
        for (of, view) in views.iter().enumerate() {
            assert_eq!(word(view, 3), 20 * size as u64);
            assert_eq!((word(view, 4 + at as u64), w.word(of, 4 + at)), (90 + at as u64, 90 + at as u64));
        }
    }
}

#[test]
fn views_and_epochs_change_the_same_memory() {
    on_shm(3, Hints::default(), true, counts);
    on_mapped_or_put(200, 3, counts);
}

#[test]
fn a_view_checks_its_bounds() {
    on_shm(2, Hints::default(), true, |w| {
        let view = view_of_met(w, 0, 1);
        let len = PART as u64;
        for (at, bytes) in
            [(len, 1), (len - 7, 8), (u64::MAX, 1), (u64::MAX - 7, 8), (0, PART + 1), (len + 1, 0)]
        {
            let error = Err(Error::OutOfBounds { rank: rank(1), at, len: bytes as u64, size: len });
            assert_eq!(view.write(at, Action::Put, &vec![1; bytes]), error);
            assert_eq!(view.fetch(at, GET, &mut vec![1; bytes]), error);
        }
        view.write(len, Action::Put, &[]).unwrap();
        view.write(len - 1, Action::Put, &[7]).unwrap();
        assert_eq!(w.word(1, PART / 8 - 1).to_ne_bytes()[7], 7);
        let element = ElementType::U64;
        assert_eq!(view.fetch(4, ADD, &mut [0; 8]), Err(Error::Misaligned { rank: rank(1), at: 4, element }));
        assert_eq!(view.fetch(0, ADD, &mut [0; 7]), Err(Error::WrongLength { len: 7, element }));
        let swap = Action::CompareSwap { element };
        assert_eq!(view.fetch(0, swap, &mut [0; 8]), Err(Error::WrongLength { len: 8, element }));
        let element = ElementType::U128;
        let long = Action::GetAccumulate { op: Reduction::Sum, element };
        assert_eq!(view.fetch(0, long, &mut [0; 16]), Err(Error::NotAWord { element }));
        assert_eq!(word(&view, 0), 0);
    });
}

#[test]
fn a_part_that_cannot_be_mapped_has_no_view() {
    fn refused<P: Port>(w: &mut World<P>) {
        assert!(view(w, 0, 1).unwrap().is_none(), "the two have not met");
        for of in [1, 0] {
            let met = meet(w, 0, of, NEVER).unwrap();
            w.wait(0, met);
            assert_eq!(view(w, 0, of).unwrap_err(), Error::NotMapped { rank: rank(of) });
        }
        w.window = w.create_dynamic(Hints::default());
        let met = meet(w, 0, 1, NEVER).unwrap();
        w.wait(0, met);
        assert_eq!(view(w, 0, 1).unwrap_err(), Error::NotMapped { rank: rank(1) });
        assert_eq!(view(w, 0, 2).unwrap_err(), Error::NotAMember { rank: rank(2) });
        assert_eq!(meet(w, 0, 2, NEVER).unwrap_err(), Error::NotAMember { rank: rank(2) });
    }
    on_loopback(2, Hints::default(), refused);
    on_puts(10, 2, refused);
    on_shm(2, Hints::default(), false, refused);
    on_shm(2, Hints { takes_part: true, ..Hints::default() }, true, refused);
}

#[test]
fn a_meeting_ends_at_its_deadline_or_with_the_member() {
    on_mapped_or_put(50, 3, |w| {
        // Rank 1 makes the next window late, and rank 2 never.
        w.window = w.create_at(0, 100, Hints::default());
        let event = Event::Window;
        let due = Time::from_nanos(w.now.as_nanos() + 1_000_000);
        let late = meet(w, 0, 1, due).unwrap();
        let result = w.complete(0, late).result;
        let awaited = [Awaiting { rank: rank(1), event, is_stopped: false }].into();
        assert_eq!(result, Err(Error::TimedOut { fate: Fate::NotDelivered, awaited }));
        let cancelled = meet(w, 0, 1, NEVER).unwrap();
        assert_eq!(
            w.engines[0].stack().awaited(w.engines[0].link(), cancelled)[..],
            [Awaiting { rank: rank(1), event, is_stopped: false }]
        );
        w.call(0, |windows, link| windows.cancel(link, cancelled));
        assert!(matches!(w.complete(0, cancelled).result, Err(Error::Link(_))));
        let (met, never) = (meet(w, 0, 1, NEVER).unwrap(), meet(w, 0, 2, NEVER).unwrap());
        w.settle();
        assert!(w.is_pending(0, met) && w.is_pending(0, never));
        assert_eq!(w.create_at(1, 100, Hints::default()), w.window);
        w.wait(0, met);
        assert!(view(w, 0, 1).unwrap().is_some());
        kill(w, 2);
        assert!(matches!(w.complete(0, never).result, Err(Error::Link(_))));
        assert!(matches!(meet(w, 0, 2, NEVER), Err(Error::Link(_))));
    });
}

/// A member that was declared failed, and does not know it, changes no memory that its owner uses for something else.
#[test]
fn a_view_ends_with_the_window() {
    fn ends<P: Port>(w: &mut World<P>) {
        let views = [view_of_met(w, 0, 1), view_of_met(w, 0, 0)];
        w.stopped.insert(0);
        for at in [1, 2] {
            w.engines[at].peer_failed(rank(0), None, Cause::Died("killed".into())).unwrap();
        }
        let window = w.window;
        let frees =
            [1, 2].map(|at| (at, w.call(at, |windows, link| windows.free(link, window, NEVER)).unwrap()));
        for (at, free) in frees {
            assert!(matches!(w.complete(at, free).result, Err(Error::Link(_))));
        }
        assert_eq!(views[0].write(0, Action::Put, &[1]), Err(Error::NoSuchWindow));
        assert_eq!(views[0].fetch(0, GET, &mut [1]), Err(Error::NoSuchWindow));
        views[1].write(0, Action::Put, &[1]).unwrap();
    }
    on_shm(3, Hints::default(), true, ends);
}
