// The order of names in which a person would count: leaf-2 before leaf-10.

const COLLATOR = new Intl.Collator('en', { numeric: true })

export const compareNaturally = (a: string, b: string) => COLLATOR.compare(a, b)
