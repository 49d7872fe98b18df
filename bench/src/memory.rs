//! The peak memory of each rank.

use std::path::Path;

use crate::benchmark::Point;
use crate::loops::Messages;
use crate::measure::EndError;
use crate::spread::Spread;

/// Exchanges a message between every pair of ranks. Returns the name of the transport and, at rank 0, the spread of all
/// ranks' peaks in MB.
pub(crate) fn measure(
    messages: &mut impl Messages,
    point: Point,
) -> Result<(String, Option<Spread>), EndError> {
    let mut into = vec![vec![1; point.bytes]; messages.size() as usize - 1];
    messages.exchange(DATA, &mut vec![1; point.bytes], &mut into)?;
    let mine = peak_bytes()?;
    // The transport is known after the first message.
    let transport = messages.transport();
    if messages.rank() > 0 {
        messages.send(0, PEAK, &mut mine.to_le_bytes().to_vec())?;
        return Ok((transport, None));
    }
    let mut peaks = vec![mine as f64 / 1e6];
    for rank in 1..messages.size() {
        let mut bytes = vec![0; 8];
        messages.recv(rank, PEAK, &mut bytes)?;
        let peak = u64::from_le_bytes(bytes.try_into().map_err(|_| "it is no number")?);
        peaks.push(peak as f64 / 1e6);
    }
    Ok((transport, Spread::of(peaks)))
}

const DATA: u64 = 0;
const PEAK: u64 = 1;

/// Returns the peak memory of this process since its program began: `VmHWM` of proc(5). The figure of getrusage(2)
/// would also include the memory of the process before it executed this program.
fn peak_bytes() -> Result<u64, EndError> {
    status("VmHWM:")
}

/// Returns the peak memory of a process, from its folder in /proc. Returns `None` if the process has ended.
pub(crate) fn peak_of(process: &Path) -> Option<u64> {
    parse(&std::fs::read_to_string(process.join("status")).ok()?, "VmHWM:")
}

/// Returns the bytes of this process that are in memory: `VmRSS` of proc(5).
///
/// # Errors
/// The file has no such field.
pub(crate) fn resident_bytes() -> Result<u64, EndError> {
    status("VmRSS:")
}

fn status(field: &str) -> Result<u64, EndError> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    parse(&status, field).ok_or_else(|| format!("no {field} in /proc/self/status").into())
}

fn parse(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_in_bytes() {
        let status = "VmPeak:\t  9000 kB\nVmHWM:\t    1520 kB\nVmRSS:\t 3 kB\n";
        assert_eq!(parse(status, "VmHWM:"), Some(1520 * 1024));
        assert_eq!(parse(status, "VmRSS:"), Some(3 * 1024));
        assert_eq!(parse("VmPeak:\t  9000 kB\n", "VmHWM:"), None);
        assert!(peak_bytes().unwrap() > 100_000);
        assert!(resident_bytes().unwrap() > 100_000);
    }
}
