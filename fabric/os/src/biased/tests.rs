use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::thread;

use super::*;
#[cfg(not(miri))]
use crate::fork::in_a_child;

#[test]
fn the_first_has_the_bias_until_another_comes() {
    let lock = BiasedMutex::new(1).unwrap();
    let is_biased = || lock.lock().unwrap().entered().get().is_null();
    assert_eq!([is_biased(), is_biased()], [barrier::join(); 2]);
    *lock.lock().unwrap() += 1;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut value = lock.lock().unwrap();
            assert!(!value.entered().get().is_null());
            *value += 1;
        });
    });
    assert!(!is_biased());
    assert_eq!(*lock.lock().unwrap(), 3);
}

#[test]
fn threads_exclude_each_other() {
    for threads in 2..5 {
        let lock = Arc::new(BiasedMutex::new(0_u64).unwrap());
        let times = if cfg!(miri) { 10 } else { 10_000 };
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| (0..times).for_each(|_| *lock.lock().unwrap() += 1));
            }
        });
        assert_eq!(*lock.lock().unwrap(), threads * times);
    }
}

#[test]
fn a_thread_does_not_lock_it_twice() {
    fn panics<R>(call: impl FnOnce() -> R) {
        assert!(catch_unwind(AssertUnwindSafe(|| drop(call()))).is_err());
    }
    for is_shared in [false, true] {
        let lock = BiasedMutex::with_errand((), |()| {}).unwrap();
        if is_shared {
            lock.share().unwrap();
        }
        drop(lock.lock().unwrap());
        let held = lock.lock().unwrap();
        assert!(!is_shared || !held.entered().get().is_null());
        panics(|| lock.lock());
        panics(|| lock.share());
        panics(|| lock.close(|()| {}));
        drop(held);
        drop(lock.lock().unwrap());
        // Another thread that has been inside is not taken for this one.
        std::thread::scope(|scope| scope.spawn(|| drop(lock.lock().unwrap())).join().unwrap());
        drop(lock.lock().unwrap());
    }
}

/// The other thread has the mutex and waits until this thread leaves, so this thread must not wait for the mutex.
#[test]
fn a_thread_does_not_lock_it_twice_while_another_takes_the_bias() {
    let lock = BiasedMutex::new(0).unwrap();
    let mut held = lock.lock().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| *lock.lock().unwrap() += 1);
        while lock.bias().owner() != SHARED {
            thread::yield_now();
        }
        assert!(catch_unwind(AssertUnwindSafe(|| drop(lock.lock()))).is_err());
        *held += 1;
        drop(held);
    });
    assert_eq!(*lock.lock().unwrap(), 2);
}

/// The function that is called for an errand has the value, so it cannot lock it.
#[test]
fn an_errand_does_not_lock_what_it_holds() {
    static LOCK: OnceLock<BiasedMutex<bool>> = OnceLock::new();
    let call = |has_panicked: &mut bool| {
        let lock = LOCK.get().expect("it was made before");
        *has_panicked = catch_unwind(AssertUnwindSafe(|| drop(lock.lock()))).is_err();
    };
    let lock = LOCK.get_or_init(|| BiasedMutex::with_errand(false, call).unwrap());
    lock.share().unwrap();
    lock.ask();
    assert!(*lock.lock().unwrap());
}

#[test]
fn a_panic_of_an_errand_leaves_it_free() {
    let lock = BiasedMutex::with_errand((), |()| panic!("the errand fails")).unwrap();
    lock.share().unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| lock.ask())).is_err());
    drop(lock.lock().unwrap());
}

#[test]
fn a_lock_with_a_forgotten_guard_can_be_moved_and_dropped() {
    for shared in [false, true] {
        let value = Arc::new(());
        let lock = BiasedMutex::new(value.clone()).unwrap();
        if shared {
            lock.share().unwrap();
        }
        std::mem::forget(lock.lock().unwrap());
        let lock = Box::new(lock);
        std::thread::scope(|scope| drop(scope.spawn(|| drop(lock))));
        assert_eq!(Arc::strong_count(&value), 1);
    }
}

#[test]
fn a_waiting_thread_lets_others_enter() {
    let (lock, event) = (BiasedMutex::new(0).unwrap(), Event::default());
    std::thread::scope(|scope| {
        drop(lock.lock().unwrap());
        scope.spawn(|| {
            let mut value = lock.lock().unwrap();
            while *value == 0 {
                value = value.wait(&event, Duration::from_secs(1)).unwrap();
            }
            *value = 2;
            event.notify_all();
        });
        *lock.lock().unwrap() = 1;
        event.notify_all();
        let mut value = lock.lock().unwrap();
        while *value != 2 {
            value = value.wait(&event, Duration::from_millis(1)).unwrap();
            drop(value);
            value = lock.lock().unwrap();
        }
    });
}

#[test]
fn each_errand_is_run_after_it_was_asked() {
    struct Board {
        /// For each thread, the number that it wrote before its latest request.
        asked: Arc<[AtomicU64; 3]>,
        /// For each thread, the latest of its numbers that an errand saw.
        seen: [u64; 3],
    }
    let asked = Arc::new([const { AtomicU64::new(0) }; 3]);
    let look = |board: &mut Board| {
        board.seen = std::array::from_fn(|index| board.asked[index].load(Ordering::Relaxed));
    };
    let board = Board { asked: Arc::clone(&asked), seen: [0; 3] };
    let lock = BiasedMutex::with_errand(board, look).unwrap();
    drop(lock.lock().unwrap());
    assert!(catch_unwind(AssertUnwindSafe(|| lock.ask())).is_err(), "it was not shared");
    lock.share().unwrap();
    let times = if cfg!(miri) { 10 } else { 10_000 };
    std::thread::scope(|scope| {
        for number in &*asked {
            scope.spawn(|| {
                for _ in 0..times {
                    number.fetch_add(1, Ordering::Relaxed);
                    lock.ask();
                }
            });
        }
        (0..times).for_each(|_| drop(lock.lock().unwrap()));
    });
    assert_eq!(lock.lock().unwrap().seen, [times; 3]);
}

#[test]
fn a_thread_that_shares_the_lock_runs_the_errands() {
    let lock = BiasedMutex::with_errand(0, |value| *value += 1).unwrap();
    drop(lock.lock().unwrap());
    let held = lock.lock().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| lock.share().unwrap());
        // Waits until the other thread has ended the bias of this thread. If the system has no barrier, there is no
        // bias: then this thread has entered with the mutex, and runs the errand when it releases the lock.
        while held.entered().get().is_null() && lock.bias().owner() != SHARED {
            std::thread::yield_now();
        }
        // Enables errands, as if a third thread had shared the lock before.
        lock.errand.enable();
        lock.ask();
        drop(held);
    });
    assert_eq!(*lock.lock().unwrap(), 1);
}

#[test]
fn a_holder_runs_the_errand_when_it_waits() {
    let lock = BiasedMutex::with_errand(0, |value| *value += 1).unwrap();
    lock.share().unwrap();
    let held = lock.lock().unwrap();
    std::thread::scope(|scope| {
        // `ask` does not wait for this thread, which holds the lock.
        scope.spawn(|| lock.ask()).join().unwrap();
    });
    assert_eq!(*held, 0);
    let held = held.wait(&Event::default(), Duration::ZERO).unwrap();
    assert_eq!(*held, 1);
    drop(held);
    lock.close(|_| lock.ask()).unwrap();
    lock.ask();
}

#[test]
fn a_panic_leaves_it_free() {
    let lock = BiasedMutex::new(1).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| panic!("{}", *lock.lock().unwrap()))).is_err());
    assert_eq!(*lock.lock().unwrap(), 1);
}

#[test]
fn a_closed_lock_returns_its_value_once_and_admits_no_thread() {
    for is_shared in [false, true] {
        let lock = BiasedMutex::new(Arc::new(1)).unwrap();
        let value = Arc::clone(&lock.lock().unwrap());
        if is_shared {
            std::thread::scope(|scope| {
                scope.spawn(|| drop(lock.lock().unwrap()));
            });
        }
        let out = lock.close(|value| *value = Arc::new(2)).unwrap();
        assert_eq!((*out, Arc::strong_count(&value), Arc::strong_count(&out)), (2, 1, 1));
        assert!(matches!(lock.lock(), Err(Refused::Closed)));
        assert!(matches!(lock.close(|_| unreachable!("it is closed")), Err(Refused::Closed)));
        drop(lock);
        assert_eq!(Arc::strong_count(&out), 1, "it is not dropped again");
    }
    let lock = BiasedMutex::new(Arc::new(1)).unwrap();
    let value = Arc::clone(&lock.lock().unwrap());
    drop(lock);
    assert_eq!(Arc::strong_count(&value), 1, "an open one drops its value");
}

#[test]
fn threads_hear_of_the_end() {
    let (lock, event) = (BiasedMutex::new(0_u64).unwrap(), Event::default());
    // Take the bias here, so that the other thread enters with the mutex: a wait of the owner of the bias returns at
    // once and keeps the lock.
    drop(lock.lock().unwrap());
    let is_in = std::sync::Barrier::new(2);
    let entered = std::thread::scope(|scope| {
        let waits = || {
            for entered in 0_u64.. {
                match lock.lock() {
                    Ok(mut value) => *value += 1,
                    Err(Refused::Closed) => return entered,
                    Err(Refused::Forked) => unreachable!("there is no fork"),
                }
            }
            0
        };
        let threads = [scope.spawn(waits), scope.spawn(waits)];
        let sleeper = scope.spawn(|| {
            let mut value = lock.lock().unwrap();
            is_in.wait();
            while let Ok(again) = value.wait(&event, Duration::from_secs(60)) {
                value = again;
            }
        });
        is_in.wait();
        while *lock.lock().unwrap() < 100 {}
        let value = lock.close(|_| {}).unwrap();
        event.notify_all();
        sleeper.join().unwrap();
        (value, threads.map(|thread| thread.join().unwrap()).iter().sum::<u64>())
    });
    assert_eq!(entered.0, entered.1);
}

#[test]
#[cfg(not(miri))]
fn a_child_of_a_fork_is_refused_whichever_thread_holds_the_lock() {
    for is_shared in [false, true] {
        let lock = BiasedMutex::new(Arc::new(())).unwrap();
        let value = Arc::clone(&lock.lock().unwrap());
        let refuses = || {
            let forked = matches!(lock.lock(), Err(Refused::Forked));
            forked && matches!(lock.close(|_| unreachable!("it is the parent's")), Err(Refused::Forked))
        };
        if is_shared {
            let (held, end) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let guard = lock.lock().unwrap();
                    held.wait();
                    end.wait();
                    drop(guard);
                });
                held.wait();
                let refused = in_a_child(refuses);
                end.wait();
                assert!(refused.unwrap());
            });
        }
        assert!(in_a_child(refuses).unwrap());
        let dropped_nothing = in_a_child(|| {
            // SAFETY: the child ends without using the lock again.
            drop(unsafe { std::ptr::read(&lock) });
            Arc::strong_count(&value) == 2
        });
        assert!(dropped_nothing.unwrap());
        drop(lock.lock().unwrap());
    }
}

/// The first owner has the bias again after a thread has returned it, and several threads in turn may do so. Once two
/// other threads have locked the mutex, it stays with no thread.
#[test]
fn a_bias_that_is_returned_is_the_first_owners() {
    let lock = BiasedMutex::new(0).unwrap();
    let owner = || lock.bias().owner();
    *lock.lock().unwrap() += 1;
    let me = owner();
    let other = |returns: bool| {
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut guard = lock.lock().unwrap();
                *guard += 1;
                if returns {
                    guard.return_bias();
                }
            });
        });
    };
    for _ in 0..3 {
        other(true);
        assert_eq!(owner(), me);
        *lock.lock().unwrap() += 1;
    }
    other(false);
    assert_eq!(owner(), SHARED);
    *lock.lock().unwrap() += 1;
    other(true);
    assert_eq!(owner(), SHARED, "two other threads have locked it");
    // The owner's own guard has nothing to return.
    lock.lock().unwrap().return_bias();
    assert_eq!(*lock.lock().unwrap(), 10);
}

/// Two threads count, one of which returns the bias each time.
#[test]
fn a_thread_that_returns_the_bias_excludes_the_owner() {
    let lock = BiasedMutex::new(0).unwrap();
    *lock.lock().unwrap() += 1;
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..2_000 {
                let mut guard = lock.lock().unwrap();
                *guard += 1;
                guard.return_bias();
            }
        });
        for _ in 0..100_000 {
            *lock.lock().unwrap() += 1;
        }
    });
    assert_eq!(*lock.lock().unwrap(), 102_001);
}
