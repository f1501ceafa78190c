import { expect, it } from 'vitest'
import { gpuHours } from './gpuHours'

it('writes GPU-hours as people read them', () => {
  expect(gpuHours(3_600_000)).toBe('1 GPU-hour')
  expect(gpuHours(34_560_000)).toBe('9.6 GPU-hours')
  expect(gpuHours(4_000)).toBe('0.0011 GPU-hours')
  expect(gpuHours(0)).toBe('0 GPU-hours')
})
