use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::thread;

#[cfg(not(miri))]
use samite_os::fork::in_a_child;

use super::*;
use crate::Body;

/// Writes `byte` to the whole buffer that is lent under `key`. Returns false if no buffer is lent to be written under
/// `key`.
fn fill(loans: &Loans, key: u64, byte: u8) -> bool {
    let mut open = loans.open();
    let Some(buffer) = open.write(key) else { return false };
    let Ok(bytes) = buffer.into_slice() else { panic!("it is contiguous") };
    bytes.fill(byte);
    true
}

fn sum(loans: &Loans, key: u64) -> Option<u32> {
    let open = loans.open();
    let data = open.read(key)?;
    let Some(bytes) = data.as_slice() else { panic!("it is contiguous") };
    Some(bytes.iter().map(|&byte| u32::from(byte)).sum())
}

#[test]
fn other_threads_use_a_buffer_until_its_scope_ends() {
    let loans = Loans::default();
    let (data, mut buffer) = (vec![1_u8, 2, 3], vec![0_u8; 8]);
    let (lent, used) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|threads| {
        threads.spawn(|| {
            lent.wait();
            assert_eq!(sum(&loans, 1), Some(6));
            assert!(fill(&loans, 2, 7));
            assert!(!fill(&loans, 1, 7), "what is lent to be read cannot be written");
            assert_eq!(sum(&loans, 2), None);
            used.wait();
        });
        loans.scope(|lender| {
            lender.lend(1, Readable::from(&data[..]));
            lender.lend_mut(2, Writable::from(&mut buffer[..]));
            assert!(!loans.is_empty() && loans.open().contains(2));
            lent.wait();
            used.wait();
        });
    });
    assert!(loans.is_empty() && !loans.open().contains(2));
    assert_eq!(buffer, [7; 8]);
    drop(data);
    assert_eq!((sum(&loans, 1), fill(&loans, 2, 9)), (None, false));
}

#[test]
fn a_panic_takes_the_buffers_back() {
    let loans = Loans::default();
    let mut buffer = vec![0_u8; 8];
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        loans.scope(|lender| {
            lender.lend_mut(2, Writable::from(&mut buffer[..]));
            assert!(fill(&loans, 2, 1));
            panic!("in the scope");
        });
    }));
    assert!(panicked.is_err());
    assert!(!fill(&loans, 2, 9));
    assert_eq!(buffer, [1; 8]);
}

/// If a thread panics while it has the table open, the table remains usable, and the scope can end.
#[test]
fn a_panic_with_the_open_table_takes_the_buffers_back() {
    let loans = Loans::default();
    let mut buffer = vec![0_u8; 8];
    loans.scope(|lender| {
        lender.lend_mut(2, Writable::from(&mut buffer[..]));
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _open = loans.open();
            panic!("with the open table");
        }));
        assert!(panicked.is_err());
        assert!(fill(&loans, 2, 3));
    });
    assert!(loans.is_empty());
    assert_eq!(buffer, [3; 8]);
}

#[test]
fn scopes_share_a_table_and_take_back_their_own_buffers() {
    let loans = Loans::default();
    let mut buffers = [[0_u8; 4]; 3];
    let [first, second, third] = &mut buffers;
    loans.scope(|outer| {
        outer.lend_mut(1, Writable::from(&mut first[..]));
        loans.scope(|inner| {
            inner.lend_mut(2, Writable::from(&mut second[..]));
            assert!(fill(&loans, 1, 1) && fill(&loans, 2, 2));
            // The outer scope has lent a buffer under this key. That buffer is removed.
            inner.lend_mut(1, Writable::from(&mut third[..]));
            assert!(fill(&loans, 1, 3));
        });
        assert!(!fill(&loans, 1, 9) && !fill(&loans, 2, 9));
    });
    assert_eq!(buffers, [[1; 4], [2; 4], [3; 4]]);
}

/// A scope ends in a child although a thread of the parent had the table open at the fork.
#[cfg(not(miri))]
#[test]
fn a_scope_ends_in_a_child() {
    let loans = Loans::default();
    let data = [1_u8];
    let (opened, forked) = (Barrier::new(2), Barrier::new(2));
    let mut lender = Some(Lender { loans: &loans, keys: Mutex::default(), env: PhantomData });
    lender.as_ref().unwrap().lend(1, Readable::from(&data[..]));
    thread::scope(|threads| {
        threads.spawn(|| {
            let _open = loans.open();
            opened.wait();
            forked.wait();
        });
        opened.wait();
        let child = || {
            drop(lender.take());
            catch_unwind(AssertUnwindSafe(|| drop(loans.open()))).is_err()
        };
        let ended = in_a_child(child);
        forked.wait();
        assert!(ended.unwrap(), "the scope has ended, and the table cannot be opened");
    });
}

/// Many scopes lend buffers and end, while another thread uses the buffers that it finds in the table.
#[test]
fn scopes_end_while_another_thread_uses_their_buffers() {
    let turns = if cfg!(miri) { 20 } else { 200 };
    let loans = Loans::default();
    let done = AtomicUsize::new(0);
    thread::scope(|threads| {
        threads.spawn(|| {
            while done.load(Ordering::Relaxed) == 0 {
                fill(&loans, 1, 5);
                sum(&loans, 2);
                thread::yield_now();
            }
        });
        for _ in 0..turns {
            let (data, mut buffer) = (Box::new([1_u8; 16]), Box::new([0_u8; 16]));
            loans.scope(|lender| {
                lender.lend_mut(1, Writable::from(&mut buffer[..]));
                lender.lend(2, Readable::from(&data[..]));
                thread::yield_now();
            });
            assert!(buffer.iter().all(|byte| *byte == buffer[0]));
        }
        done.store(1, Ordering::Relaxed);
    });
}
