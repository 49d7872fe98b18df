/* Checks the declarations of library.rs against this header: cc -fsyntax-only -I FOLDER layout.c */
#include <stddef.h>
#include <pmix.h>

#define SAME(what, value) _Static_assert((what) == (value), #what)

SAME(PMIX_MAX_NSLEN + 1, 256);
SAME(PMIX_MAX_KEYLEN + 1, 512);
SAME(PMIX_SUCCESS, 0);
SAME(PMIX_ERR_TIMEOUT, -24);
SAME(PMIX_ERR_NOT_FOUND, -46);
SAME(PMIX_GLOBAL, 3);
SAME((uint32_t)(PMIX_RANK_WILDCARD), UINT32_MAX - 1);
SAME(PMIX_BOOL, 1);
SAME(PMIX_INT, 6);
SAME(PMIX_UINT32, 14);
SAME(PMIX_BYTE_OBJECT, 27);

SAME(sizeof(pmix_proc_t), 260);
SAME(offsetof(pmix_proc_t, rank), 256);
SAME(sizeof(pmix_value_t), 32);
SAME(offsetof(pmix_value_t, data), 8);
SAME(sizeof(((pmix_value_t *)0)->type), 2);
SAME(sizeof(pmix_byte_object_t), 16);
SAME(offsetof(pmix_byte_object_t, size), 8);
SAME(sizeof(pmix_info_t), 552);
SAME(offsetof(pmix_info_t, flags), 512);
SAME(offsetof(pmix_info_t, value), 520);
SAME(sizeof(pmix_scope_t), 1);
SAME(sizeof(pmix_status_t), 4);

_Static_assert(sizeof(PMIX_JOB_SIZE PMIX_LOCAL_SIZE PMIX_NUM_NODES PMIX_NODEID PMIX_TIMEOUT PMIX_OPTIONAL) ==
               sizeof("pmix.job.size" "pmix.local.size" "pmix.num.nodes" "pmix.nodeid" "pmix.timeout" "pmix.optional"),
               "names of attributes");

/* The functions, by their types. */
pmix_status_t (*init)(pmix_proc_t *, pmix_info_t *, size_t) = PMIx_Init;
pmix_status_t (*finalize)(const pmix_info_t *, size_t) = PMIx_Finalize;
pmix_status_t (*put)(pmix_scope_t, const char *, pmix_value_t *) = PMIx_Put;
pmix_status_t (*commit)(void) = PMIx_Commit;
pmix_status_t (*fence)(const pmix_proc_t *, size_t, const pmix_info_t *, size_t) = PMIx_Fence;
pmix_status_t (*get)(const pmix_proc_t *, const char *, const pmix_info_t *, size_t, pmix_value_t **) = PMIx_Get;
const char *(*error_string)(pmix_status_t) = PMIx_Error_string;
const char *(*version)(void) = PMIx_Get_version;
