// Cells that several tables show: links to parcels, places, statuses.

import { NOTHING } from "./format.js";
import { badge } from "./table.js";

const TONES = {
  redeemed: "good",
  paid: "good",
  open: "warn",
  unpaid: "warn",
  outstanding: "warn",
  sold: "warn",
  delinquent: "bad",
  expired: "bad",
};

export const linkTo = (address) => `#${address.replace("/v1/parcels", "/parcel")}`;

export const status = (text) => (text ? badge(TONES[text.toLowerCase()] ?? "", text) : NOTHING);

export const platforms = ({ sources }) => [...new Set(sources.map(({ platform }) => platform))].join(", ");

export const titled = (slug) =>
  slug.replaceAll(/[_-]/g, " ").replace(/(^|\s)\p{Ll}/gu, (letter) => letter.toUpperCase());

export const place = ({ county, state }) => [titled(county), state].filter(Boolean).join(", ") || NOTHING;
