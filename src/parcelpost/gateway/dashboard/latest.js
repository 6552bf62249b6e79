// The latest parcels and liens, on the overview.

import { linkTo, place, platforms, status } from "./cells.js";
import { h } from "./dom.js";
import { day, moment, money, NOTHING, number } from "./format.js";
import { table, whole } from "./table.js";

const PARCELS = [
  { label: "Parcel" },
  { label: "Owner" },
  { label: "Address" },
  { label: "Place" },
  { label: "Tax due", class: "num" },
  { label: "Liens", class: "num" },
  { label: "Scraped" },
];
const LIENS = [
  { label: "Certificate" },
  { label: "Parcel" },
  { label: "Owner" },
  { label: "Tax year", class: "num" },
  { label: "Status" },
  { label: "Amount", class: "num" },
  { label: "Holder" },
  { label: "Sold" },
];

export const parcelTable = (parcels) =>
  table(
    "Parcels",
    PARCELS,
    parcels.map((parcel) => ({ key: `parcel ${parcel.address}`, cells: parcelCells(parcel) })),
  );

export const lienTable = (liens) =>
  table(
    "Liens",
    LIENS,
    liens.map((lien) => ({ key: `lien ${lien.lien_no}`, cells: lienCells(lien) })),
  );

function parcelCells(parcel) {
  return [
    [parcelLink(parcel), h("small", null, platforms(parcel))],
    parcel.owner || NOTHING,
    parcel.situs || NOTHING,
    place(parcel),
    [money(parcel.tax_due), parcel.delinquent ? h("small", { class: "bad" }, "delinquent") : null],
    parcel.lien_count ? number(parcel.lien_count) : NOTHING,
    moment(parcel.scraped_at),
  ];
}

function lienCells(lien) {
  return [
    [
      h("span", { class: "name" }, lien.certificate_number ?? NOTHING),
      lien.certificate_year ? h("small", null, lien.certificate_year) : null,
    ],
    [parcelLink(lien), h("small", null, place(lien)), h("small", null, platforms(lien))],
    lien.owner || NOTHING,
    lien.tax_year ?? NOTHING,
    status(lien.status),
    money(lien.amount),
    lien.holder_name ?? NOTHING,
    h("span", { class: whole(day(lien.sale_date)) }, day(lien.sale_date)),
  ];
}

const parcelLink = ({ address, parcel_id }) =>
  h("a", { class: `name ${whole(parcel_id)}`, href: linkTo(address) }, parcel_id);
