# Sourced by bin/dq and bin/test: `ensure_venv dq` or `ensure_venv dev` leaves a .venv in the
# checkout that has what pyproject.toml asks for. The marker is written last, so a broken
# installation is repeated; a lock lets two starts at once make one .venv, not two halves.

fail() {
    echo "dq: $*" >&2
    exit 1
}

find_python() {
    for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
        "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
        command -v "$candidate"
        return
    done
    fail "Python 3.11 or newer is needed; install it (Debian, Ubuntu: apt-get install python3)"
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        sudo -n "$@"
    else
        return 1
    fi
}

# apt_install PACKAGE...: 1 when this machine has no apt-get, or we may not use it.
apt_install() {
    command -v apt-get >/dev/null || return 1
    as_root true || return 1
    echo "dq: installing $*" >&2
    as_root apt-get update -qq >&2 || return 1
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@" >&2
}

ensure_pip() {
    "$1" -c 'import ensurepip, venv' 2>/dev/null && return
    package=$("$1" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    [ "$(id -u)" = 0 ] && apt_install "$package" && return
    fail "Python's venv module is missing; as root: apt-get install $package"
}

# make_venv PYTHON: keeps a .venv that works.
make_venv() {
    "$root/.venv/bin/python" -c 'import pip' 2>/dev/null && return
    ensure_pip "$1"
    "$1" -m venv --clear "$root/.venv" >&2 || fail "could not make $root/.venv"
}

install_into_venv() {
    python=$(find_python) || exit 1
    exec 9<"$root/pyproject.toml"
    # The lock belongs to descriptor 9, not to the process that asks for it: it stays ours.
    "$python" -c 'import fcntl; fcntl.flock(9, fcntl.LOCK_EX)'
    if ! venv_is_current "$1"; then
        echo "dq: installing into $root/.venv (once)" >&2
        make_venv "$python"
        extras=
        [ "$1" != dev ] || extras='[dev]'
        "$root/.venv/bin/python" -m pip install --quiet --disable-pip-version-check \
            --editable "$root$extras" >&2 || fail "could not install dq's packages (see above)"
        echo "$(fingerprint) $1" >"$root/.venv/.dq-installed"
    fi
    exec 9<&-
}

# What was installed, and where: a copied or moved checkout installs anew.
fingerprint() {
    echo "$(cksum <"$root/pyproject.toml") $root"
}

# venv_is_current dq: an installation for tests ("dev") has everything that dq needs.
venv_is_current() {
    [ -x "$root/.venv/bin/python" ] && [ -f "$root/.venv/.dq-installed" ] || return 1
    IFS= read -r installed <"$root/.venv/.dq-installed" || return 1
    wanted=$(fingerprint)
    [ "$installed" = "$wanted dev" ] || [ "$installed" = "$wanted $1" ]
}

ensure_venv() {
    venv_is_current "$1" || install_into_venv "$1"
}
