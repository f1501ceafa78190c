// The cluster's clock between two readings of it. Virtual time may run faster than ours.

import { createContext, useContext, useEffect, useRef, useState } from 'react'
import type { ClusterView } from '../api/views'

export interface ClockReading {
  now_s: number
  speed: number
  takenMs: number // our own clock when it came
}

/** The cluster's time now. It never runs far ahead of the last reading: a cluster that is silent stands still. */
export function clusterNow(reading: ClockReading, ourMs: number, isLive: boolean): number {
  const passed_s = isLive ? Math.max(0, (ourMs - reading.takenMs) / 1000) : 0
  return Math.floor(reading.now_s + passed_s * reading.speed)
}

/** Ticks once a second with the cluster's time; 0 before the first reading. */
export function useClusterClock(cluster: ClusterView | undefined, isLive: boolean): number {
  const reading = useRef<ClockReading | null>(null)
  const [now_s, setNow] = useState(0)
  useEffect(() => {
    if (!cluster) return
    reading.current = { now_s: cluster.now_s, speed: cluster.speed, takenMs: performance.now() }
    setNow(cluster.now_s)
  }, [cluster])
  useEffect(() => {
    if (!isLive) return
    const tick = () => {
      if (reading.current) setNow(clusterNow(reading.current, performance.now(), true))
    }
    const timer = window.setInterval(tick, 1000)
    return () => window.clearInterval(timer)
  }, [isLive])
  return now_s
}

/** The cluster's time, for everything that shows an age. */
export const Now = createContext(0)
export const useNow = () => useContext(Now)
