//! Lanes: the runtimes of one rank, each with a port, a lock and an order of messages of its own.
//!
//! All lanes are opened when the rank joins its job. A rank publishes one address, which holds the addresses of its
//! ports ([`Addresses`]), so a lane needs nothing from the launcher that the rank does not have anyway. The lanes share
//! the launcher's connection ([`directory`]).

mod directory;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use samite_fabric::Address;

use crate::Error;
use crate::error::Fate;
use crate::runtime::{Directory, Runtime};
use crate::transport::Transport;

pub(crate) use directory::share;

/// A lane, among those of its rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lane {
    /// The number of the lane, from 0.
    pub(crate) number: usize,
    /// The number of lanes of the rank.
    pub(crate) of: usize,
}

impl Lane {
    /// The lane of a rank that has one.
    #[cfg(test)]
    pub(crate) const ONLY: Self = Self { number: 0, of: 1 };
}

/// The runtimes of a rank, by lane.
pub(crate) struct Lanes {
    runtimes: Vec<Arc<Runtime<Transport>>>,
    /// Held while a context is opened in all lanes: two contexts are opened in the same order in each.
    opening: Mutex<()>,
}

impl Lanes {
    /// Joins the runtimes of a rank, which then know each other.
    pub(crate) fn new(runtimes: Vec<Arc<Runtime<Transport>>>) -> Arc<Self> {
        let lanes = Arc::new(Self { runtimes, opening: Mutex::new(()) });
        for runtime in &lanes.runtimes {
            runtime.join_lanes(Arc::downgrade(&lanes));
        }
        lanes
    }

    /// Returns the runtime of the first lane.
    pub(crate) fn first(&self) -> &Arc<Runtime<Transport>> {
        &self.runtimes[0]
    }

    /// Ends the rank's part in the job: says goodbye in all lanes, then waits until the peers have taken the messages
    /// sent to them. `tell` reports the end to the launcher; what the last lane reports counts.
    ///
    /// # Errors
    /// The first error of a lane.
    pub(crate) fn say_goodbye(&self, tell: impl Fn(&mut dyn Directory)) -> Result<(), Error> {
        let mut failed = Ok(());
        let mut goodbyes = Vec::new();
        for runtime in &self.runtimes {
            match runtime.begin_goodbye() {
                Ok(goodbye) => goodbyes.push(goodbye),
                Err(error) => failed = failed.and(Err(error)),
            }
        }
        failed.and(Runtime::end_goodbyes(goodbyes, tell))
    }

    /// Ends the rank's part in the job without a goodbye, because it is panicking.
    pub(crate) fn abandon(&self) {
        self.runtimes.iter().for_each(|runtime| runtime.abandon());
    }
}

impl fmt::Debug for Lanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lanes").field("len", &self.runtimes.len()).finish()
    }
}

impl Runtime<Transport> {
    /// Returns the runtime of a lane of this rank.
    ///
    /// # Errors
    /// [`Error::NoSuchLane`], [`Error::Closed`].
    pub(crate) fn lane(&self, lane: usize) -> Result<Arc<Self>, Error> {
        let lanes = self.lanes().ok_or(Error::Closed { fate: Fate::NotDelivered })?;
        let runtime = lanes.runtimes.get(lane).cloned();
        runtime.ok_or(Error::NoSuchLane { lane, lanes: lanes.runtimes.len() })
    }

    /// Opens contexts for the same members in all lanes. Returns false if one of them was used before: then none is
    /// open.
    ///
    /// # Errors
    /// [`Error::InvalidRank`], [`Error::Closed`], [`Error::Forked`].
    pub(crate) fn open_contexts(
        &self,
        contexts: [u32; 2],
        members: &samite_p2p::Group,
    ) -> Result<bool, Error> {
        let lanes = self.lanes().ok_or(Error::Closed { fate: Fate::NotDelivered })?;
        let _order = lanes.opening.lock().unwrap_or_else(PoisonError::into_inner);
        for (index, runtime) in lanes.runtimes.iter().enumerate() {
            if !runtime.open_contexts_here(contexts, members)? {
                lanes.runtimes[..index].iter().for_each(|runtime| runtime.close_contexts_here(contexts));
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Closes the contexts of a communicator in all lanes.
    pub(crate) fn close_contexts(&self, contexts: [u32; 2]) {
        // Without lanes the rank has left the job.
        let lanes = self.lanes();
        lanes
            .iter()
            .flat_map(|lanes| &lanes.runtimes)
            .for_each(|runtime| runtime.close_contexts_here(contexts));
    }

    /// Closes the contexts of a communicator in all lanes, and tells its other members.
    pub(crate) fn leave_contexts(&self, contexts: [u32; 2]) {
        let lanes = self.lanes();
        lanes
            .iter()
            .flat_map(|lanes| &lanes.runtimes)
            .for_each(|runtime| runtime.leave_contexts_here(contexts));
    }

    fn lanes(&self) -> Option<Arc<Lanes>> {
        self.lanes.get().and_then(Weak::upgrade)
    }
}

/// The addresses of a rank's ports, by lane, as one address: the number of lanes in a byte, then each address after its
/// length in two bytes, little-endian.
pub(crate) struct Addresses;

impl Addresses {
    /// Returns the address that a rank publishes. There are at most [`LANES_MAX`](samite_control::LANES_MAX) lanes, and an address has less than
    /// 64 KiB.
    pub(crate) fn encode(addresses: impl ExactSizeIterator<Item = Address>) -> Address {
        let mut bytes = vec![addresses.len() as u8];
        for Address(address) in addresses {
            bytes.extend((address.len() as u16).to_le_bytes());
            bytes.extend(address);
        }
        Address(bytes)
    }

    /// Returns the address of a rank's port in a lane.
    ///
    /// # Errors
    /// The reason why there is none.
    pub(crate) fn decode(Address(bytes): &Address, lane: Lane) -> Result<Address, String> {
        let malformed = || "its address is malformed".to_owned();
        let (&lanes, mut rest) = bytes.split_first().ok_or_else(malformed)?;
        if usize::from(lanes) != lane.of {
            let ours = lane.of;
            return Err(format!(
                "it has {lanes} lanes, and this rank {ours}: set SAMITE_LANES alike in all ranks"
            ));
        }
        let mut found = None;
        for number in 0..lane.of {
            let (len, behind) = rest.split_first_chunk().ok_or_else(malformed)?;
            let (address, next) =
                behind.split_at_checked(u16::from_le_bytes(*len).into()).ok_or_else(malformed)?;
            if number == lane.number {
                found = Some(Address(address.to_vec()));
            }
            rest = next;
        }
        found.filter(|_| rest.is_empty()).ok_or_else(malformed)
    }
}

#[cfg(test)]
mod tests;
