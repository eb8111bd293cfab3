/* The ceiling for a reader of small samples: one C iterator that copies payloads out of a map and builds
 * CachedSample(data, {label, score, split}, cache_id, sample_id), fetching cache lines 16 samples ahead.
 * No checks, no threads, no order of its own: it is given everything, and only builds objects. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#define AHEAD 16

typedef struct {
    PyObject_HEAD
    Py_buffer payloads, order;
    Py_ssize_t size, at, count;
    PyObject *columns[3], *names[3], *zero;
    PyTypeObject *sample;
} Loop;

static PyObject *loop_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    Loop *self = (Loop *)type->tp_alloc(type, 0);
    static const char *names[3] = {"label", "score", "split"};
    if (!self) return NULL;
    if (!PyArg_ParseTuple(args, "y*ny*OOOO", &self->payloads, &self->size, &self->order, &self->columns[0],
                          &self->columns[1], &self->columns[2], &self->sample)) {
        Py_DECREF(self);
        return NULL;
    }
    for (int i = 0; i < 3; i++) {
        Py_INCREF(self->columns[i]);
        self->names[i] = PyUnicode_InternFromString(names[i]);
    }
    Py_INCREF(self->sample);
    self->zero = PyLong_FromLong(0);
    self->count = self->order.len / 8;
    return (PyObject *)self;
}

static void loop_dealloc(Loop *self) {
    if (self->payloads.obj) PyBuffer_Release(&self->payloads);
    if (self->order.obj) PyBuffer_Release(&self->order);
    for (int i = 0; i < 3; i++) {
        Py_XDECREF(self->columns[i]);
        Py_XDECREF(self->names[i]);
    }
    Py_XDECREF(self->zero);
    Py_XDECREF(self->sample);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *loop_next(Loop *self) {
    if (self->at >= self->count) return NULL;
    const uint64_t *order = self->order.buf;
    const char *payloads = self->payloads.buf;
    if (self->at + AHEAD < self->count) {
        const char *ahead = payloads + order[self->at + AHEAD] * self->size;
        for (Py_ssize_t line = 0; line < self->size && line < 512; line += 64) __builtin_prefetch(ahead + line);
        for (int i = 0; i < 3; i++)
            __builtin_prefetch(&PyList_GET_ITEM(self->columns[i], (Py_ssize_t)order[self->at + AHEAD]));
    }
    uint64_t row = order[self->at++];
    PyObject *data = PyBytes_FromStringAndSize(payloads + row * self->size, self->size);
    PyObject *metadata = PyDict_New();
    if (!data || !metadata) return NULL;
    for (int i = 0; i < 3; i++)
        PyDict_SetItem(metadata, self->names[i], PyList_GET_ITEM(self->columns[i], (Py_ssize_t)row));
    PyObject *sample = self->sample->tp_alloc(self->sample, 4);
    if (!sample) return NULL;
    Py_INCREF(self->zero);
    PyTuple_SET_ITEM(sample, 0, data);
    PyTuple_SET_ITEM(sample, 1, metadata);
    PyTuple_SET_ITEM(sample, 2, self->zero);
    PyTuple_SET_ITEM(sample, 3, PyLong_FromUnsignedLongLong(row));
    return sample;
}

static PyTypeObject LoopType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "bare_loop.Loop",
    .tp_basicsize = sizeof(Loop),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = loop_new,
    .tp_dealloc = (destructor)loop_dealloc,
    .tp_iter = PyObject_SelfIter,
    .tp_iternext = (iternextfunc)loop_next,
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "bare_loop", NULL, -1};

PyMODINIT_FUNC PyInit_bare_loop(void) {
    PyObject *self = PyModule_Create(&module);
    if (!self || PyType_Ready(&LoopType) < 0) return NULL;
    Py_INCREF(&LoopType);
    PyModule_AddObject(self, "Loop", (PyObject *)&LoopType);
    return self;
}
