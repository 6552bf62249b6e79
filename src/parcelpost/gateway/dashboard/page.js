// Shows a raw page as a county's site sent it. It is in a frame of its own without scripts, and this document's policy,
// which the frame inherits, lets it load nothing.

import { fetchFile, NeedsToken } from "./api.js";
import { h } from "./dom.js";

const PARCEL_PAGE = /^(\/v1\/parcels\/[^?#]+)\/page\?sha256=[0-9a-f]{64}$/;
const TASK_PAGE = /^\/v1\/artifacts\/page\?task_id=([^&#]+)$/;

const main = document.getElementById("main");

async function show() {
  const path = location.hash.slice(1);
  const [, parcel] = PARCEL_PAGE.exec(path) ?? [];
  const [, task] = TASK_PAGE.exec(path) ?? [];
  if (!parcel && !task) return say("This link does not point to a raw page.");
  const name = decodeURIComponent(parcel ? parcel.split("/").at(-1) : task.replaceAll("+", " "));
  document.getElementById("title").textContent = name;
  document.title = `Raw page of ${name} – Parcelpost gateway`;
  const back = document.getElementById("back");
  back.href = parcel ? `/#${parcel.replace("/v1/parcels", "/parcel")}` : `/#/task/${encodeURIComponent(name)}`;
  back.textContent = `Back to the ${parcel ? "parcel" : "task"}`;
  try {
    const file = await fetchFile(path);
    main.replaceChildren(await frame(file));
  } catch (error) {
    say(error instanceof NeedsToken ? "Sign in on the dashboard first." : error.message);
  }
}

async function frame(file) {
  const start = (await file.slice(0, 1_000).text()).trimStart();
  if (start.startsWith("<")) return framed(new Blob([file], { type: "text/html" }));
  return h("pre", { class: "raw-text", tabindex: "0" }, readable(await file.text()));
}

const framed = (page) =>
  h("iframe", { sandbox: "", title: "The raw page", referrerpolicy: "no-referrer", src: URL.createObjectURL(page) });

function readable(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

const say = (text) => main.replaceChildren(h("p", { class: "empty", role: "alert" }, text));

addEventListener("hashchange", show);
show();
