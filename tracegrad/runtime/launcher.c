/* Generic launcher: calls any compiled program with NumPy arrays, at the cost of a C call.
 *
 * make(entry, inputs, outputs, externals, workspace, release_gil, fail, keep) -> callable
 *
 *   inputs     tuple of (type number, accept, written, shape); accept is a sum of ACCEPT_*
 *   outputs    tuple of (type number, returns, shape); returns is one of RETURN_*
 *   externals  tuple of addresses (constants), bufs after inputs and outputs
 *   workspace  bytes
 *   fail       called as fail(status, detail) when the program stops; what it returns is returned
 *   keep       kept alive with the callable
 *
 * The callable takes one positional argument per input.  It returns NotImplemented, having done
 * nothing, when an argument is not exactly what the descriptor says; else one result or a tuple.
 */
#define PY_SSIZE_T_CLEAN
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#include <Python.h>
#include <numpy/arrayobject.h>
#include <stdint.h>
#include <stdlib.h>

#define CAPSULE "tracegrad.launcher.descriptor"
#define ON_STACK 64 /* buffers; more go to the heap */

enum { ACCEPT_ARRAY = 1, ACCEPT_FLOAT = 2, ACCEPT_SCALAR = 4 };
enum { RETURN_ARRAY = 0, RETURN_SCALAR = 1, RETURN_FLOAT = 2 };

typedef int (*entry_fn)(void *const *bufs, void *ws);

typedef struct {
    int type_num, accept, written, returns, ndim;
    Py_ssize_t nbytes;
    PyTypeObject *scalar_type;
    npy_intp shape[NPY_MAXDIMS];
} leaf;

typedef struct {
    entry_fn entry;
    Py_ssize_t nin, nout, next, nbuf, workspace;
    int release_gil, any_written;
    char busy;  /* whether `arena` is in use; atomic */
    void *arena; /* made at the first call, 64-byte aligned */
    PyObject *fail, *keep;
    leaf *leaves; /* inputs, then outputs */
    void **externals;
} descriptor;

/* ---------------------------------------------------------------------------- workspace */

static void *aligned_new(Py_ssize_t nbytes)
{
    char *raw = malloc((size_t)nbytes + 64 + sizeof(void *));
    if (raw == NULL) {
        return NULL;
    }
    char *aligned = (char *)(((uintptr_t)raw + sizeof(void *) + 63) & ~(uintptr_t)63);
    ((void **)aligned)[-1] = raw;
    return aligned;
}

static void aligned_free(void *p)
{
    if (p != NULL) {
        free(((void **)p)[-1]);
    }
}

/* The kept arena when no other call holds it, else a fresh one. */
static void *acquire(descriptor *d, int *is_kept)
{
    *is_kept = 0;
    if (d->workspace == 0) {
        return NULL;
    }
    if (!__atomic_test_and_set(&d->busy, __ATOMIC_ACQUIRE)) {
        if (d->arena == NULL) {
            d->arena = aligned_new(d->workspace);
        }
        if (d->arena != NULL) {
            *is_kept = 1;
            return d->arena;
        }
        __atomic_clear(&d->busy, __ATOMIC_RELEASE);
    }
    void *fresh = aligned_new(d->workspace);
    if (fresh == NULL) {
        PyErr_NoMemory();
    }
    return fresh;
}

static void release(descriptor *d, void *ws, int is_kept)
{
    if (is_kept) {
        __atomic_clear(&d->busy, __ATOMIC_RELEASE);
    } else {
        aligned_free(ws);
    }
}

/* ---------------------------------------------------------------------------- arguments */

static int has_shape(const leaf *l, PyArrayObject *a)
{
    if (PyArray_NDIM(a) != l->ndim) {
        return 0;
    }
    const npy_intp *shape = PyArray_DIMS(a);
    for (int k = 0; k < l->ndim; k++) {
        if (shape[k] != l->shape[k]) {
            return 0;
        }
    }
    return 1;
}

/* The address of the data of `arg`, or NULL when it does not fit; scalars go to `slot`. */
static void *address(const leaf *l, PyObject *arg, uint64_t *slot)
{
    if ((l->accept & ACCEPT_ARRAY) && PyArray_CheckExact(arg)) {
        PyArrayObject *a = (PyArrayObject *)arg;
        const int flags = NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED |
                          (l->written ? NPY_ARRAY_WRITEABLE : 0);
        if (PyArray_TYPE(a) != l->type_num || !PyArray_CHKFLAGS(a, flags) ||
            !PyArray_ISNOTSWAPPED(a) || !has_shape(l, a)) {
            return NULL;
        }
        return PyArray_DATA(a);
    }
    if ((l->accept & ACCEPT_FLOAT) && PyFloat_CheckExact(arg)) {
        const double value = PyFloat_AsDouble(arg);
        if (l->type_num == NPY_DOUBLE) {
            *(double *)slot = value;
        } else {
            *(float *)slot = (float)value;
        }
        return slot;
    }
    if ((l->accept & ACCEPT_SCALAR) && Py_TYPE(arg) == l->scalar_type) {
        PyArray_ScalarAsCtype(arg, slot);
        return slot;
    }
    return NULL;
}

/* Whether a written input shares bytes with another input: then the program is not for it. */
static int has_overlap(const descriptor *d, void *const *bufs)
{
    for (Py_ssize_t i = 0; i < d->nin; i++) {
        if (!d->leaves[i].written) {
            continue;
        }
        const char *lo = bufs[i], *hi = lo + d->leaves[i].nbytes;
        for (Py_ssize_t j = 0; j < d->nin; j++) {
            const char *a = bufs[j], *b = a + d->leaves[j].nbytes;
            if (j != i && a < hi && lo < b) {
                return 1;
            }
        }
    }
    return 0;
}

/* ------------------------------------------------------------------------------ results */

static PyObject *wrap_scalar(const leaf *l, void *slot)
{
    if (l->returns == RETURN_FLOAT) {
        return PyFloat_FromDouble(l->type_num == NPY_DOUBLE ? *(double *)slot : *(float *)slot);
    }
    PyArray_Descr *descr = PyArray_DescrFromType(l->type_num);
    PyObject *scalar = PyArray_Scalar(slot, descr, NULL);
    Py_DECREF(descr);
    return scalar;
}

/* Fill `made` and the output part of `bufs`; scalars are made after the call, from slots. */
static int new_outputs(const descriptor *d, PyObject **made, void **bufs, uint64_t *slots)
{
    for (Py_ssize_t i = 0; i < d->nout; i++) {
        const leaf *l = &d->leaves[d->nin + i];
        if (l->returns != RETURN_ARRAY) {
            bufs[d->nin + i] = &slots[d->nin + i];
            continue;
        }
        made[i] = PyArray_SimpleNew(l->ndim, (npy_intp *)l->shape, l->type_num);
        if (made[i] == NULL) {
            return -1;
        }
        bufs[d->nin + i] = PyArray_DATA((PyArrayObject *)made[i]);
    }
    return 0;
}

static PyObject *collect(const descriptor *d, PyObject **made, uint64_t *slots)
{
    for (Py_ssize_t i = 0; i < d->nout; i++) {
        if (made[i] == NULL) {
            made[i] = wrap_scalar(&d->leaves[d->nin + i], &slots[d->nin + i]);
            if (made[i] == NULL) {
                return NULL;
            }
        }
    }
    if (d->nout == 1) {
        PyObject *only = made[0];
        made[0] = NULL;
        return only;
    }
    PyObject *all = PyTuple_New(d->nout);
    for (Py_ssize_t i = 0; all != NULL && i < d->nout; i++) {
        PyTuple_SetItem(all, i, made[i]);
        made[i] = NULL;
    }
    return all;
}

/* --------------------------------------------------------------------------------- call */

/* Run the program on `bufs`; 1 when it ran, 0 when it stopped (then *answer is set), -1 error. */
static int run(descriptor *d, void **bufs, PyObject **answer)
{
    int is_kept, status;
    void *ws = acquire(d, &is_kept);
    if (ws == NULL && d->workspace != 0) {
        return -1;
    }
    if (d->release_gil) {
        Py_BEGIN_ALLOW_THREADS
        status = d->entry(bufs, ws);
        Py_END_ALLOW_THREADS
    } else {
        status = d->entry(bufs, ws);
    }
    const int64_t detail = status != 0 && d->workspace >= 8 ? *(int64_t *)ws : 0;
    release(d, ws, is_kept);
    if (status == 0) {
        return 1;
    }
    *answer = PyObject_CallFunction(d->fail, "iL", status, (long long)detail);
    return 0;
}

static PyObject *call_with(descriptor *d, PyObject *const *args, void **bufs, uint64_t *slots,
                           PyObject **made)
{
    for (Py_ssize_t i = 0; i < d->nin; i++) {
        bufs[i] = address(&d->leaves[i], args[i], &slots[i]);
        if (bufs[i] == NULL) {
            Py_RETURN_NOTIMPLEMENTED;
        }
    }
    if (d->any_written && has_overlap(d, bufs)) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    for (Py_ssize_t i = 0; i < d->next; i++) {
        bufs[d->nin + d->nout + i] = d->externals[i];
    }
    for (Py_ssize_t i = 0; i < d->nout; i++) {
        made[i] = NULL;
    }
    PyObject *answer = NULL;
    if (new_outputs(d, made, bufs, slots) == 0 && run(d, bufs, &answer) == 1) {
        answer = collect(d, made, slots);
    }
    for (Py_ssize_t i = 0; i < d->nout; i++) {
        Py_XDECREF(made[i]);
    }
    return answer;
}

static PyObject *launch(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    descriptor *d = PyCapsule_GetPointer(self, CAPSULE);
    if (d == NULL) {
        return NULL;
    }
    if (nargs != d->nin) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    if (d->nbuf <= ON_STACK) {
        void *bufs[ON_STACK];
        uint64_t slots[ON_STACK];
        PyObject *made[ON_STACK];
        return call_with(d, args, bufs, slots, made);
    }
    const size_t n = (size_t)d->nbuf;
    char *heap = PyMem_Malloc(n * (sizeof(uint64_t) + 2 * sizeof(void *)));
    if (heap == NULL) {
        return PyErr_NoMemory();
    }
    void **bufs = (void **)(heap + n * sizeof(uint64_t));
    PyObject *answer = call_with(d, args, bufs, (uint64_t *)heap, (PyObject **)(bufs + n));
    PyMem_Free(heap);
    return answer;
}

static PyMethodDef launch_def = {"launch", (PyCFunction)(void (*)(void))launch, METH_FASTCALL,
                                 "Call the compiled program."};

/* --------------------------------------------------------------------------------- make */

static void free_descriptor(descriptor *d)
{
    for (Py_ssize_t i = 0; d->leaves != NULL && i < d->nin + d->nout; i++) {
        Py_XDECREF((PyObject *)d->leaves[i].scalar_type);
    }
    aligned_free(d->arena);
    PyMem_Free(d->leaves);
    PyMem_Free(d->externals);
    Py_XDECREF(d->fail);
    Py_XDECREF(d->keep);
    PyMem_Free(d);
}

static void capsule_free(PyObject *capsule)
{
    descriptor *d = PyCapsule_GetPointer(capsule, CAPSULE);
    if (d != NULL) {
        free_descriptor(d);
    }
}

static int read_leaf(leaf *l, PyObject *shape)
{
    PyArray_Descr *descr = PyArray_DescrFromType(l->type_num);
    if (descr == NULL) {
        return -1;
    }
    l->nbytes = PyDataType_ELSIZE(descr);
    Py_DECREF(descr);
    l->scalar_type = (PyTypeObject *)PyArray_TypeObjectFromType(l->type_num);
    if (l->scalar_type == NULL) {
        return -1;
    }
    const Py_ssize_t ndim = PyTuple_Size(shape);
    if (ndim < 0 || ndim > NPY_MAXDIMS) {
        PyErr_SetString(PyExc_ValueError, "shape has too many axes");
        return -1;
    }
    l->ndim = (int)ndim;
    for (Py_ssize_t k = 0; k < ndim; k++) {
        l->shape[k] = PyLong_AsSsize_t(PyTuple_GetItem(shape, k));
        if (l->shape[k] < 0) {
            if (!PyErr_Occurred()) {
                PyErr_SetString(PyExc_ValueError, "shape has a negative size");
            }
            return -1;
        }
        l->nbytes *= l->shape[k];
    }
    const int is_one_word = l->ndim == 0 && l->nbytes <= 8;
    const int is_float = l->type_num == NPY_DOUBLE || l->type_num == NPY_FLOAT;
    if (((l->accept & (ACCEPT_FLOAT | ACCEPT_SCALAR)) || l->returns != RETURN_ARRAY) &&
        !is_one_word) {
        PyErr_SetString(PyExc_ValueError, "only arrays of no axes can pass as scalars");
        return -1;
    }
    if (((l->accept & ACCEPT_FLOAT) || l->returns == RETURN_FLOAT) && !is_float) {
        PyErr_SetString(PyExc_ValueError, "only f32 and f64 can pass as float");
        return -1;
    }
    return 0;
}

static int read_leaves(descriptor *d, PyObject *inputs, PyObject *outputs)
{
    PyObject *shape;
    for (Py_ssize_t i = 0; i < d->nin + d->nout; i++) {
        leaf *l = &d->leaves[i];
        if (i < d->nin) {
            if (!PyArg_ParseTuple(PyTuple_GetItem(inputs, i), "iipO!", &l->type_num, &l->accept,
                                  &l->written, &PyTuple_Type, &shape)) {
                return -1;
            }
            d->any_written |= l->written;
        } else if (!PyArg_ParseTuple(PyTuple_GetItem(outputs, i - d->nin), "iiO!", &l->type_num,
                                     &l->returns, &PyTuple_Type, &shape)) {
            return -1;
        }
        if (read_leaf(l, shape) < 0) {
            return -1;
        }
    }
    return 0;
}

static int read_externals(descriptor *d, PyObject *externals)
{
    for (Py_ssize_t i = 0; i < d->next; i++) {
        d->externals[i] = PyLong_AsVoidPtr(PyTuple_GetItem(externals, i));
        if (d->externals[i] == NULL && PyErr_Occurred()) {
            return -1;
        }
    }
    return 0;
}

static PyObject *make(PyObject *module, PyObject *args)
{
    PyObject *address_of, *inputs, *outputs, *externals, *fail, *keep;
    Py_ssize_t workspace;
    int release_gil;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO!O!O!npOO", &address_of, &PyTuple_Type, &inputs, &PyTuple_Type,
                          &outputs, &PyTuple_Type, &externals, &workspace, &release_gil, &fail,
                          &keep)) {
        return NULL;
    }
    void *entry = PyLong_AsVoidPtr(address_of);
    if (entry == NULL || workspace < 0) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_ValueError, "no entry, or negative workspace");
        }
        return NULL;
    }
    descriptor *d = PyMem_Calloc(1, sizeof *d);
    if (d == NULL) {
        return PyErr_NoMemory();
    }
    d->entry = (entry_fn)(uintptr_t)entry;
    d->nin = PyTuple_Size(inputs);
    d->nout = PyTuple_Size(outputs);
    d->next = PyTuple_Size(externals);
    d->nbuf = d->nin + d->nout + d->next;
    d->workspace = workspace;
    d->release_gil = release_gil;
    Py_INCREF(fail);
    d->fail = fail;
    Py_INCREF(keep);
    d->keep = keep;
    d->leaves = PyMem_Calloc((size_t)(d->nin + d->nout) + 1, sizeof *d->leaves);
    d->externals = PyMem_Calloc((size_t)d->next + 1, sizeof *d->externals);
    if (d->leaves == NULL || d->externals == NULL) {
        PyErr_NoMemory();
        free_descriptor(d);
        return NULL;
    }
    if (read_leaves(d, inputs, outputs) < 0 || read_externals(d, externals) < 0) {
        free_descriptor(d);
        return NULL;
    }
    PyObject *capsule = PyCapsule_New(d, CAPSULE, capsule_free);
    if (capsule == NULL) {
        free_descriptor(d);
        return NULL;
    }
    PyObject *callable = PyCFunction_NewEx(&launch_def, capsule, NULL);
    Py_DECREF(capsule);
    return callable;
}

static PyMethodDef methods[] = {
    {"make", make, METH_VARARGS, "Make a callable for one compiled program."},
    {NULL, NULL, 0, NULL},
};

static int exec_module(PyObject *module)
{
    (void)module;
    import_array1(-1);
    return 0;
}

static PyModuleDef_Slot slots_of_module[] = {
    {Py_mod_exec, (void *)exec_module},
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT, "_tracegrad_launcher", "Calls compiled programs.", 0, methods,
    slots_of_module, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__tracegrad_launcher(void) { return PyModuleDef_Init(&module_def); }
