# SPDX-License-Identifier: (Apache-2.0 OR MIT)
"""The `samite` command for Spack 1.0 and later. In a repository of packages: packages/samite/package.py."""

from spack_repo.builtin.build_systems.cargo import CargoPackage

from spack.package import *


class Samite(CargoPackage):
    """Message passing in Rust over libfabric: starts and examines jobs."""

    homepage = "https://github.com/samite-project/samite"
    git = "https://github.com/samite-project/samite.git"

    license("MIT OR Apache-2.0")

    version("main", branch="main")

    variant("ofi", default=True, description="Networks, through libfabric; without this variant only the shared memory of one host")

    depends_on("c", type="build")
    depends_on("rust@1.95:", type="build")
    depends_on("pkgconfig", type="build", when="+ofi")
    depends_on("libfabric@1.17:", when="+ofi")
    # `samite run --bind` and `samite info --topology` load hwloc, and find it by the run path of the binary.
    depends_on("hwloc@2", type=("link", "run"))

    @property
    def build_directory(self):
        return join_path(self.stage.source_path, "service", "cli")

    @property
    def build_args(self):
        features = [] if self.spec.satisfies("+ofi") else ["--no-default-features"]
        return ["--locked", *features]
