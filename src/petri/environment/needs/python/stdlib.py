"""The standard library, by version: what never comes from a package index."""

import sys
from functools import cache

_REMOVED_IN: dict[tuple[int, int], str] = {
    (3, 8): "macpath dummy_threading",
    (3, 9): "_dummy_thread",
    (3, 10): "formatter parser symbol",
    (3, 11): "binhex",
    (3, 12): "asynchat asyncore distutils imp smtpd",
    (3, 13): (
        "aifc audioop cgi cgitb chunk crypt imghdr mailcap msilib nis nntplib ossaudiodev pipes sndhdr spwd "
        "sunau telnetlib uu xdrlib lib2to3"
    ),
}
_NEW_IN: dict[tuple[int, int], str] = {
    (3, 9): "graphlib zoneinfo",
    (3, 11): "tomllib",
    (3, 14): "annotationlib compression",
}
_PYTHON_2 = """
    __builtin__ __main__ BaseHTTPServer ConfigParser Cookie HTMLParser Queue SimpleHTTPServer SocketServer
    StringIO Tkinter anydbm cPickle cStringIO cookielib commands exceptions htmlentitydefs httplib md5 popen2
    robotparser sets sha tkFileDialog tkMessageBox ttk urllib2 urlparse xmlrpclib _typeshed __future__
    __phello__ antigravity this test tests idlelib turtledemo
"""
"""Names of Python 2, and names that only look importable: no package is meant by them either."""


@cache
def is_standard(name: str, python: tuple[int, int]) -> bool:
    """Say whether a top-level name is, or once was, the standard library's.

    A module that this version no longer has is still no reason to install a package: whoever imports
    `distutils` or `imp` means the one that was there.
    """
    if name in _SINCE:
        return python >= _SINCE[name]
    return name in _KNOWN


_SINCE = {name: since for since, names in _NEW_IN.items() for name in names.split()}
_KNOWN = frozenset(
    {*sys.stdlib_module_names, *_PYTHON_2.split()}.union(*(names.split() for names in _REMOVED_IN.values()))
)
