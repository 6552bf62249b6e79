// Positions and scales of a chart. Pure functions.

const STEPS = [1, 2, 2.5, 5, 10];
const MINUTE_STEPS = [5, 10, 15, 30, 60, 120, 180, 240, 360];

// Round marks from 0 up to the first that holds the largest value: about `wanted` of them.
export function marks(largest, wanted = 4) {
  if (largest <= 0) return [0, 1];
  const rough = largest / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * STEPS.find((factor) => factor * power >= rough * 0.999);
  const count = Math.ceil(largest / step - 1e-9);
  return Array.from({ length: count + 1 }, (_, place) => Number((place * step).toPrecision(12)));
}

// Round moments (ms) of the local day between two moments, not more than `most`.
export function moments(from, to, most) {
  const minutes = (to - from) / 60_000;
  const step = (MINUTE_STEPS.find((length) => minutes / length <= most) ?? 720) * 60_000;
  const zone = new Date(from).getTimezoneOffset() * 60_000;
  const times = [];
  for (let at = Math.ceil((from - zone) / step) * step + zone; at <= to; at += step) times.push(at);
  return times;
}

const ENDS = ["done", "not_found", "failed", "expired", "dead"];

// Counts per minute, and `ended`, the sum of all that end a task or its lease. The newest bucket still runs. In its first
// minute, what is missing of the minute is taken from the bucket before, so that it neither drops to 0 nor shoots up.
export function perMinute(activity, now) {
  const since = Date.parse(activity.since);
  const bucket = activity.bucket_seconds;
  const length = Math.max(0, ...Object.values(activity.series).map((counts) => counts.length));
  const ran = Math.max(0, (now - since) / 1_000 - (length - 1) * bucket);
  const missing = Math.max(0, 60 - ran);
  const newest = (count, before) => (count * 60 + ((before * 60) / bucket) * missing) / (ran + missing);
  const rates = (counts) =>
    counts.map((count, place) =>
      place === length - 1 && ran < bucket ? newest(count, counts[place - 1] ?? 0) : (count * 60) / bucket,
    );
  const series = Object.fromEntries(
    Object.entries(activity.series).map(([name, counts]) => [name, rates(counts)]),
  );
  series.ended = Array.from({ length }, (_, place) =>
    ENDS.reduce((sum, name) => sum + (series[name]?.[place] ?? 0), 0),
  );
  return { since, bucketMs: bucket * 1_000, length, series };
}
