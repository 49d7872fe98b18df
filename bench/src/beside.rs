//! The latency between two ranks on two simulated hosts, if one of these ranks shares its host with a third rank. This
//! measures the cost of a message over libfabric when the port also has shared-memory rings to poll. Ranks 0 and 2 are
//! measured, and rank 1 is the third rank, on the host of rank 0.

use samite::{Rank, World};
use samite_launch::{LaunchError, Options, Remote};

use crate::loops::{Messages, Side};
use crate::measure::EndError;

/// The transport that Samite uses between hosts by default, and the only transport of this benchmark. If a user selects
/// a transport, it carries all messages, so no rank uses shared memory.
pub(crate) const TRANSPORT: &str = "tcp;ofi_rxm";

/// The tag of the message after which the third rank ends.
const DONE: u64 = 1 << 33;

/// Returns the options of the same job on two hosts, with one more rank on the first host. Both hosts are this machine.
pub(crate) fn options(options: Options) -> Result<Options, LaunchError> {
    let hosts =
        ["127.0.0.1", "127.0.0.2"].map(|name| samite_launch::Host { name: name.to_owned(), slots: None });
    // A remote shell that runs the command on this machine. The script gets the host's name as `$0`, which it ignores.
    let shell = ["sh", "-c", "exec \"$@\""].map(str::to_owned).to_vec();
    let remote = Remote { hosts: hosts.to_vec(), shell, address: None };
    Ok(Options { ranks: options.ranks + 1, remote: Some(remote), ..options })
}

/// One of the two measured ranks.
#[derive(Debug)]
pub(crate) struct Apart {
    world: World,
    transport: String,
}

impl Apart {
    /// Joins the measurement. Returns `None` in the third rank, after the two other ranks have measured.
    ///
    /// # Errors
    /// Returns an error if the job does not have three ranks, if the ranks do not reach each other, or if ranks 0 and 1
    /// do not use shared memory.
    pub(crate) fn new(world: World) -> Result<Option<Self>, EndError> {
        if world.comm().size() != 3 {
            return Err("this is measured between two ranks beside a third".into());
        }
        let rank = world.comm().rank();
        // Rank 1 exchanges a message only with rank 0. A connection to rank 2 would be polled too, and would change the
        // measurement.
        for other in if rank == 0 { 1..3 } else { 0..1 } {
            world.comm().sendrecv(&[0_u8; 0], Rank(other), 0, &mut [0_u8; 0], Rank(other), 0)?;
        }
        if rank == 1 {
            world.comm().recv::<u8>(&mut [], Rank(0), DONE)?;
            return Ok(None);
        }
        if rank == 0 && world.comm().transport(Rank(1)).as_deref() != Some("samite-shm") {
            return Err("the neighbour is not reached by shared memory".into());
        }
        let transport = world.comm().transport(Rank(2 - rank.0)).unwrap_or_default();
        Ok(Some(Self { world, transport }))
    }

    fn other(&self) -> u32 {
        2 - self.world.comm().rank().0
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        if self.world.comm().rank() == 0 {
            // An error is ignored: the third rank ends with the job even if it does not receive this message.
            let _ = self.world.comm().send::<u8>(&[], Rank(1), DONE);
        }
    }
}

impl Messages for Apart {
    fn rank(&self) -> u32 {
        self.world.comm().rank().0 / 2
    }

    fn size(&self) -> u32 {
        2
    }

    fn transport(&self) -> String {
        self.transport.clone()
    }

    #[inline]
    fn send(&mut self, _: u32, tag: u64, data: &mut Vec<u8>) -> Result<(), EndError> {
        Ok(self.world.comm().send(data, Rank(self.other()), tag)?)
    }

    #[inline]
    fn recv(&mut self, _: u32, tag: u64, into: &mut Vec<u8>) -> Result<(), EndError> {
        self.world.comm().recv(into, Rank(self.other()), tag)?;
        Ok(())
    }

    fn transfer(&mut self, _: Side, _: bool, _: u32, _: &mut Vec<u8>) -> Result<(), EndError> {
        Err(ONLY_LATENCY.into())
    }

    fn send_many(&mut self, _: u32, _: u64, _: &mut [Vec<u8>]) -> Result<(), EndError> {
        Err(ONLY_LATENCY.into())
    }

    fn recv_many(&mut self, _: u32, _: u64, _: &mut [Vec<u8>]) -> Result<(), EndError> {
        Err(ONLY_LATENCY.into())
    }

    fn exchange(&mut self, _: u64, _: &mut Vec<u8>, _: &mut [Vec<u8>]) -> Result<(), EndError> {
        Err(ONLY_LATENCY.into())
    }
}

const ONLY_LATENCY: &str = "beside shared memory only latency is measured";
