//! Lanes: the runtimes of one rank, each with a port, a lock and an order of messages of its own.
//!
//! All lanes are opened when the rank joins its job. A rank publishes one address, which holds the addresses of its
//! ports ([`Addresses`]), so the control protocol is the same for any number of lanes. The lanes share the connection
//! to the launcher ([`directory`]).

mod directory;

use std::fmt;
use std::sync::{Arc, Weak};

use samite_fabric::Address;
use samite_p2p::{Config, Incarnations, Time};

use crate::Error;
use crate::error::Fate;
use crate::runtime::{Directory, Runtime};
use crate::stack::Engine;
use crate::transport::Transport;

pub(crate) use directory::share;

/// The number of a lane, and the number of lanes of its rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lane {
    /// The number of the lane, from 0.
    pub(crate) number: usize,
    /// The number of lanes of the rank.
    pub(crate) of: usize,
}

impl Lane {
    /// The lane of a rank that has only one.
    #[cfg(test)]
    pub(crate) const ONLY: Self = Self { number: 0, of: 1 };
}

/// The runtimes of a rank, by lane.
pub(crate) struct Lanes {
    runtimes: Vec<Arc<Runtime<Transport>>>,
}

impl Lanes {
    /// Returns the lanes of a rank, and makes its runtimes known to each other.
    pub(crate) fn new(runtimes: Vec<Arc<Runtime<Transport>>>) -> Arc<Self> {
        let lanes = Arc::new(Self { runtimes });
        for runtime in &lanes.runtimes {
            runtime.join_lanes(Arc::downgrade(&lanes));
            runtime.permit_background();
        }
        if lanes.runtimes.len() > 1 {
            // The first lane's lock is held while the methods of [`Others`] take the locks of other lanes. This cannot
            // deadlock: no thread takes the first lane's lock while it holds the lock of another lane.
            let others = Box::new(Others(Arc::downgrade(&lanes)));
            lanes.first().act(|engine, _| engine.set_others(others));
        }
        lanes
    }

    /// Returns the runtime of the first lane.
    pub(crate) fn first(&self) -> &Arc<Runtime<Transport>> {
        &self.runtimes[0]
    }

    /// Ends the rank's part in the job: says goodbye in all lanes, then waits until the peers have taken the messages
    /// sent to them. `tell` reports the end to the launcher. It is called for each lane, and the launcher receives the
    /// report at the last call.
    ///
    /// # Errors
    /// The first error of a lane.
    pub(crate) fn say_goodbye(&self, tell: impl Fn(&mut dyn Directory)) -> Result<(), Error> {
        #[cfg(metered)]
        crate::metered::report(self.first());
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

    /// Closes the contexts of a communicator in all lanes.
    pub(crate) fn close_contexts(&self, context: u32) {
        // This is `None` if the rank has left the job. In that case its contexts have ended already.
        let lanes = self.lanes();
        lanes
            .iter()
            .flat_map(|lanes| &lanes.runtimes)
            .for_each(|runtime| runtime.close_contexts_here(context));
    }

    /// Revokes the contexts of a communicator in all lanes.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`].
    pub(crate) fn revoke(&self, context: u32) -> Result<(), Error> {
        self.in_all_lanes(|engine, now| engine.revoke(now, context))
    }

    /// Acknowledges the known failures of members in all lanes: see [`Engine::acknowledge`]. Returns these members.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`].
    pub(crate) fn acknowledge(
        &self,
        contexts: [u32; 2],
        members: &samite_p2p::Group,
    ) -> Result<samite_p2p::Group, Error> {
        let mut failed = None;
        self.in_all_lanes(|engine, _| {
            let of_lane = engine.acknowledge(contexts, members);
            failed.get_or_insert(of_lane);
        })?;
        Ok(failed.expect("a rank has a lane"))
    }

    /// Calls a function for the engines of all lanes, from the first on.
    fn in_all_lanes(&self, mut act: impl FnMut(&mut Engine<Transport>, Time)) -> Result<(), Error> {
        let lanes = self.lanes().ok_or(Error::Closed { fate: Fate::NotDelivered })?;
        lanes.runtimes.iter().try_for_each(|runtime| runtime.try_act(&mut act))
    }

    fn lanes(&self) -> Option<Arc<Lanes>> {
        self.lanes.get().and_then(Weak::upgrade)
    }
}

/// All lanes except the first lane. They open and close the same contexts as the first lane.
#[derive(Debug)]
struct Others(Weak<Lanes>);

impl samite_p2p::Others for Others {
    fn open(
        &self,
        name: u64,
        group: &samite_p2p::Group,
        remote: Option<&samite_p2p::Group>,
        incarnations: &Incarnations,
    ) -> bool {
        let Some(lanes) = self.0.upgrade() else { return true };
        // An error means that the lane is closed. A closed lane takes no part in the agreement, so it must not make the
        // agreement fail.
        let open = |lane: &Arc<Runtime<Transport>>| {
            lane.open_contexts_here(name, group, remote, incarnations).unwrap_or(true)
        };
        let Some(failed) = lanes.runtimes.iter().skip(1).position(|lane| !open(lane)) else { return true };
        for lane in &lanes.runtimes[1..1 + failed] {
            // The number of the first of the two contexts is the low half of their name.
            lane.act(|engine, now| engine.withdraw_contexts(now, name as u32));
        }
        false
    }

    fn withdraw(&self, context: u32) {
        let lanes = self.0.upgrade();
        let others = lanes.iter().flat_map(|lanes| &lanes.runtimes[1..]);
        others.for_each(|lane| lane.act(|engine, now| engine.withdraw_contexts(now, context)));
    }

    fn leave(&self, context: u32) {
        let lanes = self.0.upgrade();
        let others = lanes.iter().flat_map(|lanes| &lanes.runtimes[1..]);
        others.for_each(|lane| lane.act(|engine, now| engine.leave_contexts(now, context)));
    }
}

/// Returns the configuration of a lane's engine. With several lanes there is no outbox: a call makes progress in its
/// own lane only, so a message in the outbox of one lane would not be sent while the program waits in another lane.
pub(crate) fn engine_config(config: &Config, lanes: usize) -> Config {
    let mut config = config.clone();
    if lanes > 1 {
        config.outbox_max = 0;
    }
    config
}

/// The addresses of a rank's ports, by lane, encoded in one address: the number of lanes in a byte, then each address
/// after its length in two bytes, little-endian.
pub(crate) struct Addresses;

impl Addresses {
    /// Returns the address that a rank publishes. There are at most [`LANES_MAX`](samite_control::LANES_MAX) lanes, and
    /// the address of a port has less than 64 KiB, so the number of lanes fits into one byte, and each length into two
    /// bytes.
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
    /// The reason why the address cannot be read or has no such lane, for an error message.
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
