use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::*;

#[test]
fn the_first_has_the_bias_until_another_comes() {
    let lock = BiasedMutex::new(1);
    let is_biased = || lock.lock().shared.is_none();
    assert_eq!([is_biased(), is_biased()], [barrier::join(); 2]);
    *lock.lock() += 1;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut value = lock.lock();
            assert!(value.shared.is_some());
            *value += 1;
        });
    });
    assert!(!is_biased());
    assert_eq!(*lock.lock(), 3);
}

#[test]
fn threads_exclude_each_other() {
    for threads in 2..5 {
        let lock = Arc::new(BiasedMutex::new(0_u64));
        let times = if cfg!(miri) { 10 } else { 10_000 };
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| (0..times).for_each(|_| *lock.lock() += 1));
            }
        });
        assert_eq!(*lock.lock(), threads * times);
    }
}

#[test]
fn a_thread_does_not_lock_it_twice() {
    let lock = BiasedMutex::new(());
    drop(lock.lock());
    let held = lock.lock();
    if held.shared.is_none() {
        assert!(catch_unwind(AssertUnwindSafe(|| drop(lock.lock()))).is_err());
    }
    drop(held);
    drop(lock.lock());
}

#[test]
fn whoever_waits_lets_others_in() {
    let (lock, condition) = (BiasedMutex::new(0), Condvar::new());
    std::thread::scope(|scope| {
        drop(lock.lock());
        scope.spawn(|| {
            let mut value = lock.lock();
            while *value == 0 {
                value = value.wait(&condition, Duration::from_secs(1));
            }
            *value = 2;
            condition.notify_all();
        });
        *lock.lock() = 1;
        condition.notify_all();
        let mut value = lock.lock();
        while *value != 2 {
            value = value.wait(&condition, Duration::from_millis(1));
            drop(value);
            value = lock.lock();
        }
    });
}

#[test]
fn a_panic_leaves_it_free() {
    let lock = BiasedMutex::new(1);
    assert!(catch_unwind(AssertUnwindSafe(|| panic!("{}", *lock.lock()))).is_err());
    assert_eq!(*lock.lock(), 1);
}
