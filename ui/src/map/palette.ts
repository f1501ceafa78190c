// The page's colours, as a canvas needs them: resolved for the theme that is shown.

import type { Palette } from './paint'

const NAMES: Record<Exclude<keyof Palette, 'font'>, string> = {
  surface: '--surface',
  tile: '--tile',
  line: '--line',
  track: '--track',
  text: '--text',
  muted: '--muted',
  accent: '--accent',
  coming: '--coming',
  warn: '--warn',
  danger: '--danger',
  hatch: '--hatch',
}

export function readPalette(element: HTMLElement): Palette {
  const probe = element.appendChild(document.createElement('span'))
  const resolve = (name: string) => {
    probe.style.color = `var(${name})`
    return getComputedStyle(probe).color
  }
  const colours = Object.fromEntries(Object.entries(NAMES).map(([field, name]) => [field, resolve(name)]))
  const font = getComputedStyle(element).fontFamily
  probe.remove()
  return { ...(colours as Omit<Palette, 'font'>), font }
}
