//! Message matching by (context, source, tag). With the default structure the time of a match does not grow with the
//! length of the queues, except for a receive that compares only some bits of a tag. The crate can be used without the
//! rest of Samite.
//!
//! A [`Matcher`] decides which message goes to which receive. Receives are posted with a [`Pattern`], messages arrive
//! with an [`Envelope`]; a receive and a message that match are returned to the caller together. A receive or message
//! that finds no match waits in a queue. The order is MPI's, also with wildcards and tag masks: a message goes to the
//! matching receive that was posted first, and a receive gets the matching message that arrived first. Payloads have
//! the user's own types, one for receives and one for messages.
//!
//! ```
//! use samite_matching::{Arrival, Config, Envelope, Matcher, Pattern, Posting};
//!
//! let mut matcher: Matcher<&str, Vec<u8>> = Matcher::new(&Config::default());
//!
//! // No receive is posted for this message: it is queued.
//! let early = matcher.arrive(Envelope::new(0, 3, 42), || b"hello".to_vec());
//! assert!(matches!(early, Arrival::Queued(_)));
//!
//! // The first receive has another tag and waits; the second takes the message.
//! assert!(matches!(matcher.post(Pattern::exact(0, 3, 7), "first"), Posting::Queued(_)));
//! let Posting::Matched { unexpected, .. } = matcher.post(Pattern::exact(0, 3, 0).any_tag(), "second") else {
//!     unreachable!("there is a message from rank 3")
//! };
//! assert_eq!(unexpected, b"hello");
//!
//! // This message matches the first receive; the payload for the queue is never made.
//! assert_eq!(matcher.arrive(Envelope::new(0, 3, 7), || unreachable!()), Arrival::Matched("first"));
//! ```
//!
//! The structure of the queues is a type parameter, a [`Structure`]: [`Adaptive`] by default. [`LinkedList`],
//! [`RankArray`], [`BTree`] and [`FourD`] implement published structures, for comparison. Another parameter, a
//! [`Meter`], may count the visits of searches. A matcher has no thread, lock, clock or input: it runs in its owner's
//! calls.
//!
//! Memory is counted ([`Matcher::memory`]) and may be limited ([`Config::bytes_max`]): an insertion that could exceed
//! the limit is refused, and its payload is returned or not made. Pools keep the memory that they have allocated, so
//! that a steady load does not allocate.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod adaptive;
mod btree;
mod chain;
mod config;
mod four_d;
mod handle;
mod key;
mod list;
mod matcher;
mod memory;
mod meter;
mod pool;
mod query;
mod rank_array;
mod structure;

pub use adaptive::Adaptive;
pub use btree::BTree;
pub use config::Config;
pub use four_d::FourD;
pub use handle::{Arrival, PostedId, Posting, Purged, UnexpectedId};
pub use key::{Envelope, Pattern, Source};
pub use list::LinkedList;
pub use matcher::Matcher;
pub use memory::Memory;
pub use meter::{Counting, Meter, SearchStats, Silent, Stats, Wildcards};
pub use query::{Query, Side};
pub use rank_array::RankArray;
pub use structure::{Selection, Structure};

/// Compiles and runs the README's example too.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
