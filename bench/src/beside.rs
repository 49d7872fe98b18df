//! Two ranks of different hosts, as far as they know, one of which shares memory with a third: what a message over
//! libfabric costs where the port has rings to look at as well.

use samite::World;
use samite_launch::{LaunchError, Options, Remote};

use crate::loops::Messages;
use crate::measure::EndError;

/// What carries messages between hosts unless another is asked for, which would carry all of them.
pub(crate) const TRANSPORT: &str = "tcp;ofi_rxm";

/// What the third waits for.
const DONE: u64 = 1 << 33;

/// The same job on two hosts that are this one: one rank more, on the first.
pub(crate) fn options(options: Options) -> Result<Options, LaunchError> {
    let hosts =
        ["127.0.0.1", "127.0.0.2"].map(|name| samite_launch::Host { name: name.to_owned(), slots: None });
    // A remote shell that goes nowhere: the name of the host is the script's.
    let shell = ["sh", "-c", "exec \"$@\""].map(str::to_owned).to_vec();
    let remote = Remote { hosts: hosts.to_vec(), shell, address: None };
    Ok(Options { ranks: options.ranks + 1, remote: Some(remote), ..options })
}

/// One of the two.
#[derive(Debug)]
pub(crate) struct Apart {
    world: World,
    transport: String,
}

impl Apart {
    /// None in the third, once the others have measured.
    ///
    /// # Errors
    /// They do not reach each other, or not in these ways.
    pub(crate) fn new(world: World) -> Result<Option<Self>, EndError> {
        if world.size() != 3 {
            return Err("this is measured between two ranks beside a third".into());
        }
        let rank = world.rank();
        // The third meets the first alone: the other one would have a connection to it, and look at that in each poll.
        for other in if rank == 0 { 1..3 } else { 0..1 } {
            world.sendrecv(&[0_u8; 0], other, 0, &mut [0_u8; 0], other, 0)?;
        }
        if rank == 1 {
            world.recv::<u8>(&mut [], 0, DONE)?;
            return Ok(None);
        }
        if rank == 0 && world.transport(1).as_deref() != Some("samite-shm") {
            return Err("the neighbour is not reached by shared memory".into());
        }
        let transport = world.transport(2 - rank).unwrap_or_default();
        Ok(Some(Self { world, transport }))
    }

    fn other(&self) -> u32 {
        2 - self.world.rank()
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        if self.world.rank() == 0 {
            // It ends with the job in any case.
            let _ = self.world.send::<u8>(&[], 1, DONE);
        }
    }
}

impl Messages for Apart {
    fn rank(&self) -> u32 {
        self.world.rank() / 2
    }

    fn size(&self) -> u32 {
        2
    }

    fn transport(&self) -> String {
        self.transport.clone()
    }

    #[inline]
    fn send(&mut self, _: u32, tag: u64, data: &[u8]) -> Result<(), EndError> {
        Ok(self.world.send(data, self.other(), tag)?)
    }

    #[inline]
    fn recv(&mut self, _: u32, tag: u64, into: &mut [u8]) -> Result<(), EndError> {
        self.world.recv(into, self.other(), tag)?;
        Ok(())
    }

    fn send_many(&mut self, _: u32, _: u64, _: &[u8], _: usize) -> Result<(), EndError> {
        Err(ONLY_LATENCY.into())
    }

    fn recv_many(&mut self, _: u32, _: u64, _: &mut [Vec<u8>]) -> Result<(), EndError> {
        Err(ONLY_LATENCY.into())
    }

    fn exchange(&mut self, _: u64, _: &[u8], _: &mut [Vec<u8>]) -> Result<(), EndError> {
        Err(ONLY_LATENCY.into())
    }
}

const ONLY_LATENCY: &str = "beside shared memory only latency is measured";
