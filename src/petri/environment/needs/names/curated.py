"""What the wheels cannot tell: which of several to take, what is nowhere to be had, what says nothing.

Every line here was decided by a person. What can be read off wheels belongs into the table, not here.
"""

from collections.abc import Mapping

from petri.environment.needs.words import names_in

DISTRIBUTION: Mapping[str, str] = {
    # Several distributions bring the same module: the one that works in a cell without a screen or a GPU.
    "cv2": "opencv-python-headless",
    # Several distributions bring the same module: the one that people mean.
    "memcache": "python-memcached",
    "py": "py",
    "pydantic_ai": "pydantic-ai",
    # Not among the most used, but the only ones of their name, and known for decades.
    "deezer": "deezer-python",
    "do_mpc": "do-mpc",
    "eyed3": "eyed3",
    "indicnlp": "indic-nlp-library",
    "mpl_finance": "mpl-finance",
    "mpv": "mpv",
    "HTSeq": "htseq",
    "mayavi": "mayavi",
    "sonnet": "dm-sonnet",
    # Not among the most used, and something else that is brings a module of their name.
    "iris": "scitools-iris",
    "keystone": "keystone-engine",
    "itk": "itk",
    "yt": "yt",
    "xdg": "pyxdg",
    "ee": "earthengine-api",
    "googlesearch": "googlesearch-python",
    "griffe": "griffe",
    "hnswlib": "hnswlib",
    "inference": "inference",
    "pymupdf4llm": "pymupdf4llm",
    "mpl_toolkits": "matplotlib",
    # Beside what a distribution is called after, and left out of the table for that.
    "_cffi_backend": "cffi",
    "_pytest": "pytest",
    "clr": "pythonnet",
    "dal": "django-autocomplete-light",
    "direct.showbase": "panda3d",
    "ens": "web3",
    "Imath": "openexr",
    "pyspiel": "open-spiel",
    "kernprof": "line-profiler",
    "pyVim": "pyvmomi",
    "pybullet": "pybullet",
    "simtk": "openmm",
    # No wheel to look into, or none for Linux: built where that is allowed.
    "_mysql": "mysqlclient",
    "cairo": "pycairo",
    "community": "python-louvain",
    "cups": "pycups",
    "dbus": "dbus-python",
    "execjs": "pyexecjs",
    "llama_cpp": "llama-cpp-python",
    "fuse": "fusepy",
    "gi": "pygobject",
    "gflags": "python-gflags",
    "ldap": "python-ldap",
    "ldapurl": "python-ldap",
    "ldif": "python-ldap",
    "MySQLdb": "mysqlclient",
    "nmap": "python-nmap",
    "nvd3": "python-nvd3",
    "odf": "odfpy",
    "plaid": "plaid-python",
    "whisper": "openai-whisper",
    "osgeo": "gdal",
    "wx": "wxpython",
    # Part of something whose newest wheels no longer have it.
    "pkg_resources": "setuptools<81",
    # Namespaces whose root is somebody's own.
    "paho.mqtt": "paho-mqtt",
    "mysql.connector": "mysql-connector-python",
    "airflow": "apache-airflow",
    "google.type": "googleapis-common-protos",
    "google.rpc": "googleapis-common-protos",
    "google.longrunning": "googleapis-common-protos",
    "opentelemetry.sdk": "opentelemetry-sdk",
    "rpy2": "rpy2",
    "rpy2.robjects": "rpy2",
}

SPECIAL: Mapping[str, str] = {
    **{
        name: name.lower().replace("_", "-")
        for name in names_in("""
    abjad acpype afinn agentpy alphalens astroplan aubio axelrod bioservices biosppy bluepy boxsdk
    brainiak bt cclib cdlib cellrank censys chembl_webresource_client chemprop cirpy ciw cooler crepe
    cufflinks devito empyrical esper essentia evalml ffmpegcv finta fipy flopy galpy geneticalgorithm
    getdist goatools GPyOpt gwpy hapsira heartpy ht infomap inspyred investpy jugaad_data karateclub
    kats ktrain landlab lazypredict lightkurve lyricsgenius madmom mesa meshpy mesop mingus mobi mordred
    nashpy nitime noise nsepy nutils obd oct2py padasip parmed pastas perlin_noise petsc4py pgzero
    plasmapy poliastro pomegranate primesieve prody psychrolib pyamg pyeda pyfirmata pyfluids pyfolio
    pygambit pygame_gui pygame_menu pygatt pygmsh pyhrv pymeasure pymsis pymultinest PyPDF4 pypsa
    pysheds pysmt pyswarm pyswmm pywebio pyxel qcelemental rebound rocketpy ropper salabim scvelo sfepy
    spleeter squidpy stellargraph summa sumolib tblite tcod tespy top2vec toytree tpot traci tsfel
    vidgear vina windpowerlib wntr xtb yahoo_fin
""")
    },
    "allel": "scikit-allel",
    "ants": "antspyx",
    "autosklearn": "auto-sklearn",
    "orbit": "orbit-ml",
    "pde": "py-pde",
    "pgzrun": "pgzero",
    "platypus": "platypus-opt",
    "scvi": "scvi-tools",
    "stl": "numpy-stl",
}
"""Not among the most used, but what those of one trade mean by the name. Nobody misspells these by chance."""

STRANGERS: Mapping[str, str] = {
    "beautifulsoup": "bs4",
    "BeautifulSoup": "bs4",
    "bigquery": "google.cloud.bigquery",
    "django_rest_framework": "rest_framework",
    "huggingface": "huggingface_hub",
    "opencv": "cv2",
    "open_cv": "cv2",
    "pytorch": "torch",
    "panda": "pandas",
    "spark": "pyspark",
    "tdqm": "tqdm",
    "pyyml": "yaml",
    "distribute": "setuptools",
}
"""Called like what people mean; but empty, another's, or what was before. Not to be had by name either."""

MISTAKEN: Mapping[str, str] = {
    **STRANGERS,
    # What people call a module once they have it.
    "np": "numpy",
    "pd": "pandas",
    "plt": "matplotlib.pyplot",
    "pyplot": "matplotlib.pyplot",
    "sns": "seaborn",
    "tf": "tensorflow",
    # What it is about.
    "mongo": "pymongo",
    "scikit": "sklearn",
    "yml": "yaml",
    # No wheel to look into; but it is known that no module in it is called like it.
    "avro_python3": "avro",
    "google_cloud": "google.cloud",
    "google_search_results": "serpapi",
    "msgpack_python": "msgpack",
    "mysql_connector": "mysql.connector",
    "mysql_python": "MySQLdb",
    "nvidia_ml_py3": "pynvml",
    "path_py": "path",
    "pycrypto": "Crypto",
    "python3_xlib": "Xlib",
    "python_chess": "chess",
    "python_igraph": "igraph",
    "python_levenshtein": "Levenshtein",
    "python_magic_bin": "magic",
}
"""Modules that no package brings although one is called so, and what is imported instead."""

ELSEWHERE: Mapping[str, str] = {
    **dict.fromkeys(
        names_in("""
    win32api win32con win32gui win32com win32file win32event win32process win32service win32clipboard
    win32print win32pipe win32security win32serviceutil win32ui win32pdh pywintypes pythoncom winerror
    winshell wmi _winreg winrt win10toast pywinauto pywin32 pypiwin32
"""),
        "Windows",
    ),
    **dict.fromkeys(
        names_in("AppKit Foundation Cocoa Quartz objc CoreFoundation CoreLocation ScriptingBridge rumps"),
        "macOS",
    ),
    **dict.fromkeys(
        names_in("""
    RPi RPi.GPIO pigpio smbus spidev board busio digitalio picamera picamera2 sense_hat neopixel
    machine micropython pyb utime uasyncio ubinascii rp2 microbit
"""),
        "the board it belongs to",
    ),
    "google.colab": "Google Colab",
    **dict.fromkeys(("uwsgi", "uwsgidecorators"), "a server of uWSGI"),
    "kaggle_secrets": "Kaggle",
    **dict.fromkeys(["dbutils", "pyspark.dbutils"], "Databricks"),
    "awsglue": "AWS Glue",
    "_snowflake": "Snowflake",
    **dict.fromkeys(["js", "pyodide", "micropip", "pyodide_js"], "a browser"),
    **dict.fromkeys(["bpy", "bmesh", "mathutils", "bpy_extras", "gpu_extras"], "Blender"),
    **dict.fromkeys(["maya", "pymel"], "Maya"),
    **dict.fromkeys(["hou", "hdefereval"], "Houdini"),
    **dict.fromkeys(["FreeCAD", "FreeCADGui", "Part", "Draft"], "FreeCAD"),
    **dict.fromkeys(["arcpy", "arcgisscripting"], "ArcGIS"),
    **dict.fromkeys(["qgis", "processing"], "QGIS"),
    **dict.fromkeys(["sublime", "sublime_plugin"], "Sublime Text"),
    **dict.fromkeys(
        names_in("gdb lldb vim nuke unreal c4d adsk Rhino rhinoscriptsyntax idaapi idc idautils ghidra"),
        "the program it is part of",
    ),
    **dict.fromkeys(["apt", "apt_pkg"], "Debian's own Python, as python3-apt"),
}
"""Modules that no package brings into a cell, and where they are at home."""

GENERIC = frozenset(
    names_in("""
    auth
    app apps api base build client cli common conf config configs configuration const constants
    controllers core data database dataset db decorators dist doc docs domain engine entities
    entity env errors examples exceptions ext extensions features forms func functions handlers
    helper helpers hooks infra infrastructure init inputs internal io_utils job jobs lib libs loader
    loaders local log logger logging_config logic main manage manager managers metrics middleware
    middlewares migrations mixins model modelling models module modules my_module my_package my_utils
    mymodule mypackage mylib node nodes operations output outputs package params parser_utils parsers
    paths pipeline pipelines plugin plugins preprocess preprocessing processors project
    project_name prompts protos pkg repositories repository resources router routers routes runner
    schemas scripts serializers server service services settings setup shared site_config
    solution solver src state states storage store stubs system task tasks template templates test
    test_utils testing tests tool tools train trainer training types_ ui urls user users util utilities
    utils validation vendor version view views web worker workers workflow workflows
    your_module your_package yourmodule examples_utils
    args aws bash blob cursor excel hello_world infinity mailer match mocker null sampleproject unify visitor
    adapters bases binary bump cart certificates classes concurrency conditional connector cookies cyclic
    dependencies diagnostic dialog english enrich ensure executor expression extras fields first flags fleet
    flex frontend hud identity ignore image inform interface intervals isolate iterators kernel kernels
    laboratory later lazy make massive maybe measurement merge method mixer moment money named needle none
    nothing notifiers observable office openapi ops outdated para parquet perception perceptron permutation
    pid pins polling portal prices queries quests race radix ranges ratio recurrent regions rel reliability
    ring robots rules runtime scheduler segments sentinel sequences sockets spaces spin status stopwatch
    stream style subdomains survey temp times trackers triangle trie update url vector vet waiter waiting
""")
)
"""Names that programs give to their own modules. A package of that name is not what was meant."""

THEMSELVES = frozenset(
    names_in("""
    aresponses celery_once chromedriver_binary clint colormath commonregex contexttimer cppimport
    ctransformers datrie demjson3 djongo dlib docplex docrep eel elasticsearch5
    encodec envparse ete3 expects fairseq fastdtw firebirdsql fitparse
    flask_apscheduler flask_principal flask_script geotext graphqlclient hexdump hickle ibapi
    imaplib2 interruptingcow ipytest jaeger_client japanize_matplotlib jsonrpcserver kenlm krakenex
    leveldb lightfm llist luhn mamba_ssm markdownx mgzip millify mmcv mocket neovim nested_lookup
    nglview numerize odo ofxparse onetimepass owlready2 p_tqdm parsl pbkdf2 pdftotext pesq placebo
    pretrainedmodels pybloom_live pyclamd pycoin pycosat pycuda pydotplus pyeapi pyftpdlib pygerrit2
    pygrok pyhs2 pylcs pyminizip pymqi pypyodbc pyqrcode pyrfc pyshorteners pysodium pysrt
    pytest_clarity python_speech_features pytricia pyworld pyx pyzipcode qrcode_terminal random2
    recordclass rectpack redlock retworkx reverse_geocoder rpy2 salt scipp shodan sickle simpledbf
    slumber soundex spyne sslyze stem stopit str2bool sunpy supersmoother tailer tensorrt theano
    timeloop tinys3 torch_scatter torchgeo torrequest trueskill tzwhere unsync untokenize upsetplot
    varint virustotal3 wavedrom webapp2 workdays yookassa
""")
)
"""Little used, and without a wheel to look into or one edit from a famous name; known to be themselves."""

NAMESPACES = frozenset(
    names_in("""
    airflow.providers amazon azure azure.mgmt azure.ai azure.storage azureml backports databricks google
    google.cloud
    google.ads google.ai jaraco llama_index opentelemetry opentelemetry.instrumentation paste paho
    nvidia repoze ruamel sphinxcontrib tencentcloud zope zc collective plone snowflake mysql
""")
)
"""Names that many packages share: by themselves they say nothing."""

LATE: Mapping[str, Mapping[str, str]] = {
    "pandas": {
        "read_excel": "openpyxl",
        "to_excel": "openpyxl",
        "ExcelWriter": "openpyxl",
        "ExcelFile": "openpyxl",
        "read_parquet": "pyarrow",
        "to_parquet": "pyarrow",
        "read_feather": "pyarrow",
        "to_feather": "pyarrow",
        "read_orc": "pyarrow",
        "to_orc": "pyarrow",
        "read_html": "lxml",
        "read_xml": "lxml",
        "to_xml": "lxml",
        "read_hdf": "tables",
        "to_hdf": "tables",
        "to_markdown": "tabulate",
        "to_latex": "jinja2",
    },
}
"""Modules that a library imports only when this of it is used: library → attribute → module."""
LATE_ATTRIBUTES = frozenset(name for attributes in LATE.values() for name in attributes)
