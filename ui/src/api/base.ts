export const BASE = '/api/v1'
