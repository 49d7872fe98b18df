//! The directories of running jobs' sockets.
//!
//! Other users may be able to make directories at the same paths, and sockets in them. So a directory is used only if
//! it belongs to this user and no other user may enter it. Then only this user, or root, can have made its contents.

use std::fmt;
use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, open};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::getuid;
use samite_control::printable::one_line;

/// An open directory that only this user can access.
#[derive(Debug)]
pub(super) struct Place {
    directory: OwnedFd,
}

/// The reason why a directory or a socket is not used: it may not be this user's alone, or it cannot be opened.
#[derive(Debug)]
pub(super) struct Untrusted {
    pub(super) path: PathBuf,
    pub(super) why: String,
}

/// Returns the paths of the possible directories, with the preferred directory first.
pub(super) fn candidates() -> Vec<PathBuf> {
    let of_session = std::env::var_os("XDG_RUNTIME_DIR").map(|path| PathBuf::from(path).join("samite"));
    let ours = PathBuf::from(format!("/tmp/samite-{}", getuid().as_raw()));
    of_session.into_iter().chain([ours]).filter(|path| path.is_absolute()).collect()
}

impl Place {
    /// Opens the directory, and creates it if necessary.
    ///
    /// # Errors
    /// The errors of mkdir(2), if the directory does not exist and cannot be created. Otherwise the errors of
    /// [`open`](Self::open), as the source of the returned error, or `NotFound` if the directory was removed meanwhile.
    pub(super) fn make(path: &Path) -> io::Result<Place> {
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        Place::open(path).map_err(io::Error::other)?.ok_or_else(|| ErrorKind::NotFound.into())
    }

    /// Opens the directory. Returns `None` if it does not exist.
    ///
    /// # Errors
    /// [`Untrusted`] if the path is a symbolic link or no directory, or cannot be opened. Also if the directory belongs
    /// to another user or gives others any permission.
    pub(super) fn open(path: &Path) -> Result<Option<Place>, Untrusted> {
        let untrusted = |why: String| Untrusted { path: path.to_owned(), why };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = match open(path, flags, Mode::empty()) {
            Ok(directory) => directory,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::NOTDIR | Errno::LOOP) => {
                return Err(untrusted("it is no directory, or a link to one".into()));
            }
            Err(error) => return Err(untrusted(error.to_string())),
        };
        let found = fstat(&directory).map_err(|error| untrusted(error.to_string()))?;
        match distrust(&found) {
            Some(why) => Err(untrusted(why)),
            None => Ok(Some(Place { directory })),
        }
    }

    /// Returns a path that is valid in this process, and leads to the opened directory even after the directory was
    /// renamed. The path is short, because the address of a socket has room for only 107 bytes.
    pub(super) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.directory.as_raw_fd()))
    }

    /// Connects to a socket in the directory. Does not wait, even if the other side accepts no connections.
    ///
    /// # Errors
    /// `PermissionDenied` with an [`Untrusted`] as the source, if the file is no socket, if the socket or its listener
    /// belongs to another user, or if the socket gives others any permission. Otherwise the errors of lstat(2),
    /// socket(2) and connect(2).
    pub(super) fn connect(&self, name: &Path) -> io::Result<UnixStream> {
        let path = self.path().join(name);
        let denied = |why: &str| {
            let why = Untrusted { path: name.to_owned(), why: why.to_owned() };
            io::Error::new(ErrorKind::PermissionDenied, why)
        };
        let found = fs::symlink_metadata(&path)?;
        if FileType::from_raw_mode(found.mode()) != FileType::Socket {
            return Err(denied("it is no socket"));
        }
        if found.uid() != getuid().as_raw() || found.mode() & OTHERS != 0 {
            return Err(denied("it is not this user's alone"));
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &SocketAddrUnix::new(&path)?)?;
        // The kernel reports the listener's user.
        if socket_peercred(&socket)?.uid != getuid() {
            return Err(denied("another user listens there"));
        }
        Ok(socket.into())
    }
}

/// Returns the reason not to trust a directory, or `None` if it belongs to this user and gives others no permission.
fn distrust(found: &Stat) -> Option<String> {
    let mode = found.st_mode & 0o7777;
    match () {
        () if found.st_uid != getuid().as_raw() => Some(format!("it belongs to user {}", found.st_uid)),
        () if mode & OTHERS != 0 => {
            Some(format!("others may use it: its mode is {mode:04o}, and must be 0700"))
        }
        () => None,
    }
}

/// The permissions of the group and of all others.
const OTHERS: u32 = 0o077;

impl fmt::Display for Untrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not used: {}", one_line(&self.path.to_string_lossy()), self.why)
    }
}

impl std::error::Error for Untrusted {}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    use std::os::unix::net::UnixListener;

    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let path = std::env::temp_dir().join(format!("samite-place-{}-{name}", std::process::id()));
            DirBuilder::new().mode(0o700).create(&path).unwrap();
            Scratch(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn why(path: &Path) -> String {
        Place::open(path).unwrap_err().why
    }

    #[test]
    fn a_directory_of_another_user_is_not_used() {
        let scratch = Scratch::new("foreign");
        // Only root can give a directory to another user. For other users the test takes a directory of root.
        let (foreign, owner) = match getuid().is_root() {
            true => (scratch.0.clone(), 65534),
            false => (PathBuf::from("/"), 0),
        };
        if getuid().is_root() {
            chown(&foreign, Some(owner), Some(owner)).unwrap();
        }
        assert_eq!(why(&foreign), format!("it belongs to user {owner}"));
        assert!(Place::make(&foreign).unwrap_err().to_string().contains("it belongs to user"));
    }

    #[test]
    fn a_directory_that_others_may_use_is_not_used() {
        let scratch = Scratch::new("mode");
        for mode in [0o777, 0o1777, 0o750, 0o701] {
            fs::set_permissions(&scratch.0, fs::Permissions::from_mode(mode)).unwrap();
            assert!(why(&scratch.0).contains(&format!("{mode:04o}")), "{mode:o}");
        }
        fs::set_permissions(&scratch.0, fs::Permissions::from_mode(0o700)).unwrap();
        assert!(Place::open(&scratch.0).unwrap().is_some());
        assert!(Place::open(&scratch.0.join("none")).unwrap().is_none());
    }

    #[test]
    fn links_and_files_are_not_used() {
        let scratch = Scratch::new("links");
        let (target, link, file) = (scratch.0.join("a"), scratch.0.join("b"), scratch.0.join("c"));
        drop(Place::make(&target).unwrap());
        symlink(&target, &link).unwrap();
        fs::write(&file, "").unwrap();
        for path in [link, file] {
            assert!(why(&path).contains("no directory"));
        }
    }

    #[test]
    fn only_a_socket_of_this_user_is_connected_to() {
        let scratch = Scratch::new("sockets");
        let place = Place::make(&scratch.0).unwrap();
        let name = Path::new("socket");
        let _listener = UnixListener::bind(scratch.0.join(name)).unwrap();
        let mode =
            |mode| fs::set_permissions(scratch.0.join(name), fs::Permissions::from_mode(mode)).unwrap();
        mode(0o600);
        place.connect(name).unwrap();
        symlink(name, scratch.0.join("link")).unwrap();
        fs::write(scratch.0.join("file"), "").unwrap();
        for bad in ["link", "file"] {
            assert!(place.connect(Path::new(bad)).unwrap_err().to_string().contains("no socket"), "{bad}");
        }
        mode(0o666);
        assert!(place.connect(name).unwrap_err().to_string().contains("not this user's alone"));
        mode(0o600);
        if getuid().is_root() {
            chown(scratch.0.join(name), Some(65534), None).unwrap();
            assert!(place.connect(name).unwrap_err().to_string().contains("not this user's alone"));
        }
    }

    #[test]
    fn connecting_does_not_wait() {
        let scratch = Scratch::new("backlog");
        let place = Place::make(&scratch.0).unwrap();
        let name = Path::new("socket");
        let listener =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        rustix::net::bind(&listener, &SocketAddrUnix::new(scratch.0.join(name)).unwrap()).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        fs::set_permissions(scratch.0.join(name), fs::Permissions::from_mode(0o600)).unwrap();
        let mut connections = Vec::new();
        let refused = loop {
            match place.connect(name) {
                Ok(connection) => connections.push(connection),
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), ErrorKind::WouldBlock);
    }
}
