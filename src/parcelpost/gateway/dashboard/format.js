// Numbers, times and names as text.

import { h } from "./dom.js";

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en-US", { notation: "compact", maximumSignificantDigits: 3 });
const rates = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 });
const dollars = new Intl.NumberFormat("en-US", { style: "currency", currency: "USD" });
const moments = new Intl.DateTimeFormat("en-US", { dateStyle: "medium", timeStyle: "short" });
const clock = new Intl.DateTimeFormat("en-US", { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });

export const NOTHING = "–";

export const number = (value) => whole.format(value);
export const compact = (value) => (value < 10_000 ? whole.format(value) : short.format(value));
export const rate = (value) => rates.format(value);
export const money = (value) => (value === null || value === undefined ? NOTHING : dollars.format(value));
export const timeOfDay = (date) => clock.format(date);
export const plural = (count, noun, plus = "") => `${number(count)}${plus} ${noun}${count === 1 ? "" : "s"}`;

export function percent(share) {
  if (share === null) return NOTHING;
  const points = share * 100;
  return `${points > 99 && points < 100 ? points.toFixed(1) : Math.round(points)}%`;
}

export function duration(seconds) {
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 2 * 86_400) return `${Math.floor(seconds / 3_600)} h`;
  return `${Math.floor(seconds / 86_400)} days`;
}

export function bytes(count) {
  if (count < 1024 ** 2) return `${Math.round(count / 1024)} KB`;
  return count < 1024 ** 3 ? `${Math.round(count / 1024 ** 2)} MB` : `${rate(count / 1024 ** 3)} GB`;
}

export function moment(text) {
  const date = new Date(text);
  const known = !Number.isNaN(date.getTime());
  return h("time", { datetime: text, title: text }, known ? moments.format(date) : text);
}

// How long ago it was, with the moment itself as a tooltip.
export function ago(text) {
  const seconds = (Date.now() - Date.parse(text)) / 1_000;
  return h("time", { datetime: text, title: moment(text).textContent }, seconds < 5 ? "now" : `${duration(seconds)} ago`);
}

// A date as the page gives it: a day has no time zone.
export const day = (text) => text ?? NOTHING;

const SPELLED = {
  zip: "ZIP",
  id: "ID",
  html: "HTML",
  desc: "description",
  norm: "normalized",
  sec: "section",
  twp: "township",
  rng: "range",
  sqft: "(sq ft)",
  acres: "(acres)",
  pct: "(%)",
  situs: "property",
};

export function words(name) {
  const text = name.split("_").map((word) => SPELLED[word] ?? word).join(" ");
  return text.charAt(0).toUpperCase() + text.slice(1);
}
