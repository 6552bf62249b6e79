// The map's projection: the world is a square from 0 to 1, as in tiles. Pure functions.

export const TILE = 256;
const LIMIT = 85.0511;

export const xOf = (lon) => (lon + 180) / 360;

export function yOf(lat) {
  const angle = (Math.max(-LIMIT, Math.min(LIMIT, lat)) * Math.PI) / 180;
  return (1 - Math.log(Math.tan(angle) + 1 / Math.cos(angle)) / Math.PI) / 2;
}

export const lonOf = (x) => x * 360 - 180;

export const latOf = (y) => (Math.atan(Math.sinh(Math.PI * (1 - 2 * y))) * 180) / Math.PI;

// The part of the world that a map of that size shows: {x, y} is its center.
export function boundsOf({ x, y, zoom }, width, height) {
  const scale = TILE * 2 ** zoom;
  const [w, e] = [x - width / 2 / scale, x + width / 2 / scale];
  const [n, s] = [y - height / 2 / scale, y + height / 2 / scale];
  return [lonOf(Math.max(0, w)), latOf(Math.min(1, s)), lonOf(Math.min(1, e)), latOf(Math.max(0, n))];
}

// The view that shows all of an area, with a margin.
export function viewOf([west, south, east, north], width, height, maxZoom) {
  const [w, e, n, s] = [xOf(west), xOf(east), yOf(north), yOf(south)];
  const margin = 40;
  const room = (pixels, share) => Math.log2(Math.max(40, pixels - 2 * margin) / TILE / Math.max(share, 1e-9));
  const zoom = Math.max(0, Math.min(maxZoom, room(width, e - w), room(height, s - n)));
  return { x: (w + e) / 2, y: (n + s) / 2, zoom };
}

// The smallest area that holds all of them, or null.
export function union(boxes) {
  if (!boxes.length) return null;
  return boxes.reduce(([w, s, e, n], [west, south, east, north]) => [
    Math.min(w, west),
    Math.min(s, south),
    Math.max(e, east),
    Math.max(n, north),
  ]);
}

// What both areas hold, or null.
export function overlap(a, b) {
  const box = [Math.max(a[0], b[0]), Math.max(a[1], b[1]), Math.min(a[2], b[2]), Math.min(a[3], b[3])];
  return box[0] < box[2] && box[1] < box[3] ? box : null;
}

export const boxText = (box) => box.map((degrees) => Number(degrees.toFixed(5))).join(",");

export function boxOf(text) {
  const box = (text ?? "").split(",").map(Number);
  return box.length === 4 && box.every(Number.isFinite) && box[0] <= box[2] && box[1] <= box[3] ? box : null;
}

// Round degrees of a grid with lines about `pixels` apart.
export function degreesApart(zoom, pixels) {
  const steps = [30, 20, 10, 5, 2, 1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 0.0005];
  const wanted = (pixels / (TILE * 2 ** zoom)) * 360;
  return steps.find((step) => step <= wanted) ?? steps.at(-1);
}
