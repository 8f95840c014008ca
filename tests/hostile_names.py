"""Names that are instructions for who reads them: compilers, CMake, shells, terminals, browsers, archives."""

from __future__ import annotations

PLANTED = "planted"
"""What is made in the current folder if one of them is obeyed."""
_C = f'system("touch {PLANTED}")'

BYTES = tuple(chr(value) for value in range(256))
INSTRUCTIONS = (
    f"*\\ __attribute__((constructor)) static void boom(void) {{ {_C}; }} \\*",
    f"*/ __attribute__((constructor)) static void boom(void) {{ {_C}; }} /*",
    f"*\\\n/ __attribute__((constructor)) static void boom(void) {{ {_C}; }} /*",
    f"*??/\n/ __attribute__((constructor)) static void boom(void) {{ {_C}; }} /*",
    f"\n*/\n#define float int\n{_C};",
    f'"); {_C}; ("',
    f'\\"); {_C}; ("',
    f'??/"); {_C}; ("',
    "%s%n%s%n",
    "a\\",
    "a??/",
    '_Pragma("GCC error")',
    "#include </etc/passwd>",
    "//",
    "/* /* /*",
    "<: :> <% %> %:",
    f"\nexecute_process(COMMAND touch {PLANTED})\n",
    f"]] \n execute_process(COMMAND touch {PLANTED}) #[[",
    "${CMAKE_COMMAND} $ENV{HOME} @HOME@ $<1:x>",
    f"$(touch {PLANTED}) `touch {PLANTED}` ; touch {PLANTED} | touch {PLANTED} &",
    "<script>alert(1)</script>",
    "]]></script><img src=x onerror=alert(1)>",
    "' onmouseover='alert(1)",
    '" onmouseover="alert(1)',
    "{{ 7 * 7 }} {% raw %}",
    "[red]red[/red] [link=file:///etc/passwd]x[/link] :smile:",
    "\x1b[2J\x1b]0;title\x07\x1b]8;;http://example.com\x1b\\link",
    "\x9b2J\x9d0;title\x9c",
    "\u202egnp.exe\u2066\u2069\u200f",
    "a\u2028b\u2029c\u0085d",
    "line\r\nPASSED: everything",
    "\ufeff\u00a0\U000e0041\ue000\uffff",
    "../../../etc/passwd",
    "/etc/passwd",
    "..\\..\\x",
    "CON",
    "-rf",
    "file",
    "allow_pickle",
    "é中文🙂",
    "%",
    "system",
    "x" * 5000,
)
CLASHES = (
    "arena", "Arena", "ARENA", "weights", "Weights", "WEIGHTS", "a", "A", "a_", "_a", "a-", "INFINITY", "NAN", "NULL",
    "int", "Int", "register", "model_run", "MODEL_OK", "model", "MODEL", "Model_k0", "INT8_MAX", "M_PI", "FLT_MAX",
    "DBL_MAX",
    "uintptr_t", "uint8_t", "memcpy", "context", "dnnl", "status", "start", "end", "stdin", "errno", "linux", "unix",
    "i386",
    "t", "t_1", "1", "t_arena", "x0", "y0", "w0", "scratch", "defined", "isnan", "main", "NDEBUG", "EOF", "BUFSIZ",
)  # fmt: skip
"""Names that mean something in C already, or differ in what identifiers leave out."""
EVERY = (*BYTES, *(f"x{b}y" for b in BYTES), *INSTRUCTIONS, *CLASHES)
