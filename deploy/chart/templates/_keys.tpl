{{- /* Made by scripts/admission_keys.py from src/kaiwo/manifests/kinds/key_table.py; change that instead. */ -}}
{{- define "kaiwo.reservedKeys" -}}
[
"kaiwo.ai/granted-devices",
"kaiwo.ai/grant-signature",
"kaiwo.ai/kept-space",
"kaiwo.ai/lost-places",
"kaiwo.ai/planned-start",
"kaiwo.ai/planned-place",
"kaiwo.ai/fills-until",
"kaiwo.ai/gpu-grade",
"kaiwo.ai/gpu-note",
"kaiwo.ai/rank",
"kaiwo.ai/world-size",
"kaiwo.ai/rank-hosts"
]
{{- end }}

{{- define "kaiwo.keyForms" -}}
{
'gpu-fraction': r'^(?: *\+?(?:0{0,25}\.[0-9]{1,25}|0{0,24}1(?:\.0{0,25})?) *)$',
'gpu-memory': r'^(?: *\+?(?:[0-9]{1,25}(?:\.[0-9]{0,25})?|\.[0-9]{1,25})(?:[eE][+-]?[0-9]{1,2}|[a-zA-Z]{0,2}) *)$',
'gpu-devices': r'^(?:[0-9]{1,12})$',
'gpu-sharing': r'^(?:true|false)$',
'gpu-isolation': r'^(?:mps|time-slicing|cu-mask|partition)$',
'gpu-isolation-grade': r'^(?:partition|memory-capped|cu-mask|mps|time-slicing)$',
'gpu-share-with': r'^(?:anyone|nobody|(?:queue|namespace|user)(?:(?:,|, |\.)(?:queue|namespace|user)){0,2})$',
'gpu-threads': r'^(?:[0-9]{1,3})$',
'gpu-partition': r'^(?: *[A-Za-z0-9.+]{1,16} *)$',
'queue': r'^(?:[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*)$',
'type': r'^(?:training|batch|notebook|inference)$',
'priority': r'^(?:-?[0-9]{1,10})$',
'gang-size': r'^(?:[0-9]{1,12})$',
'min-pods': r'^(?:[0-9]{1,12})$',
'leader': r'^(?:true|false)$',
'preemptible': r'^(?:true|false)$',
'time': r'^(?: *(?:[0-9]{1,12}|(?:[0-9]{1,12}(?:\.[0-9]{1,9})?(?:ms|[wdhms])){1,6}) *)$',
'estimate': r'^(?: *(?:[0-9]{1,12}|(?:[0-9]{1,12}(?:\.[0-9]{1,9})?(?:ms|[wdhms])){1,6}) *)$',
'preemption-delay': r'^(?: *(?:[0-9]{1,12}|(?:[0-9]{1,12}(?:\.[0-9]{1,9})?(?:ms|[wdhms])){1,6}) *)$',
'restart-cost': r'^(?: *(?:[0-9]{1,12}|(?:[0-9]{1,12}(?:\.[0-9]{1,9})?(?:ms|[wdhms])){1,6}) *)$',
'reservation': r'^(?:[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*)$',
'expires': r'^(?: *[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?(?:[Zz]|[+-][0-9]{2}:[0-9]{2}) *)$',
'topology': r'^(?:[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*)$',
'required-level': r'^(?:(?:[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)$',
'preferred-level': r'^(?:(?:[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)$',
'placement-strategy': r'^(?:consolidated|distributed|balanced|stated)$',
'segment-size': r'^(?:[0-9]{1,9})$',
'segment-level': r'^(?:(?:[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)$',
'roles-level': r'^(?:(?:[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)$',
'rank-order': r'^(?:true|false)$',
'bandwidth': r'^(?:[0-9]{1,9}(?:\.[0-9]{1,6})? ?[MGT](?:bps|B/s))$'
}
{{- end }}

{{- define "kaiwo.keyLengths" -}}
{
'user': 253,
'gpu-fraction': 63,
'gpu-memory': 63,
'gpu-devices': 63,
'gpu-sharing': 63,
'gpu-isolation': 63,
'gpu-isolation-grade': 63,
'gpu-share-with': 63,
'gpu-threads': 63,
'gpu-models': 1000,
'gpu-partition': 63,
'queue': 63,
'type': 63,
'priority': 63,
'gang': 253,
'gang-size': 63,
'min-pods': 63,
'leader': 63,
'last-checkpoint': 63,
'simulate': 63,
'run-locally': 63,
'preemptible': 63,
'time': 63,
'estimate': 63,
'preemption-delay': 63,
'restart-cost': 63,
'reservation': 63,
'expires': 63,
'topology': 63,
'required-level': 317,
'preferred-level': 317,
'placement-strategy': 63,
'segment-size': 63,
'segment-level': 317,
'roles-level': 317,
'rank-order': 63,
'bandwidth': 63
}
{{- end }}

{{- define "kaiwo.requestKeys" -}}
[
"kaiwo.ai/gpu-fraction",
"kaiwo.silogen.ai/gpu-fraction",
"kaiwo.ai/gpu-memory",
"kaiwo.silogen.ai/gpu-memory",
"kaiwo.ai/gpu-devices",
"kaiwo.silogen.ai/gpu-devices",
"kaiwo.ai/gpu-sharing",
"kaiwo.silogen.ai/gpu-sharing",
"kaiwo.ai/gpu-isolation",
"kaiwo.silogen.ai/gpu-isolation",
"kaiwo.ai/gpu-isolation-grade",
"kaiwo.silogen.ai/gpu-isolation-grade",
"kaiwo.ai/gpu-share-with",
"kaiwo.silogen.ai/gpu-share-with",
"kaiwo.ai/gpu-threads",
"kaiwo.silogen.ai/gpu-threads",
"kaiwo.ai/gpu-models",
"kaiwo.silogen.ai/gpu-models",
"kaiwo.ai/gpu-partition",
"kaiwo.silogen.ai/gpu-partition",
"kaiwo.ai/queue",
"kaiwo.silogen.ai/queue",
"kaiwo.ai/preemptible",
"kaiwo.silogen.ai/preemptible"
]
{{- end }}
