// What a device and its tenants really use. Streams leave it out, since it changes every second: it is fetched only
// while one device is shown.

import { useEffect, useState } from 'react'
import { getJson } from '../api/client'
import type { GpuView, MeasuredView, NodeView } from '../api/views'
import { repeat } from '../live/repeat'
import { memory } from '../words/amounts'

const EVERY_MS = 2000

/** The device with `measured` and its tenants' grades, or null before they are known. */
export function useMeasured(node: string, gpu: string, isWanted: boolean): GpuView | null {
  const [found, setFound] = useState<GpuView | null>(null)
  useEffect(() => {
    setFound(null)
    if (!isWanted || !gpu) return
    return repeat(EVERY_MS, async (signal) => {
      const view = await getJson<NodeView>(`/nodes/${encodeURIComponent(node)}`, signal)
      setFound(view.gpus.find((each) => each.id === gpu) ?? null)
    })
  }, [node, gpu, isWanted])
  return found
}

/** `81 % busy, 117 GiB, 712 W, 63 °C`; empty when nothing was measured. */
export function measuredWords(measured: MeasuredView | null | undefined): string {
  if (!measured) return ''
  const { busy_percent, memory_mib, power_w, temperature_c } = measured
  return [
    busy_percent !== null && `${busy_percent} % busy`,
    memory_mib !== null && memory(memory_mib),
    power_w !== null && `${power_w} W`,
    temperature_c !== null && `${temperature_c} °C`,
  ]
    .filter(Boolean)
    .join(', ')
}
