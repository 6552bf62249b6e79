// The pages by path, and the page for a path that does not exist.
//
// A view has `root` (its element) and `title`. It may have update(overview, signal), called after each poll; leave();
// follow(path, query), which returns true, or its link, if the view itself shows that address from now on; and `isPublic`:
// it needs no token and no poll. Its constructor takes the app, and what the path and the query say. Buttons that change
// something have the attribute data-admin: readers do not see them.

import { h } from "./dom.js";
import { ChangesPage } from "./changes.js";
import { CountiesPage, CountyPage } from "./counties.js";
import { DocsPage } from "./docs.js";
import { ExplorePage } from "./explore.js";
import { FailuresPage } from "./failures.js";
import { OverviewPage } from "./overview.js";
import { ParcelPage } from "./parcel.js";
import { SchedulesPage } from "./schedules.js";
import { TaskPage } from "./task.js";
import { TasksPage } from "./tasks.js";
import { WorkerPage, WorkersPage } from "./workers.js";

// [path, its link in the navigation, what makes the view]; a path that ends with * also takes what follows.
const ROUTES = [
  ["/", "/", (app, rest, query) => new OverviewPage(app, query)],
  ["/parcels", "/parcels", (app, rest, query) => new ExplorePage(app, "parcels", query)],
  ["/map", "/map", (app, rest, query) => new ExplorePage(app, "parcels", query, { path: "/map" })],
  ["/liens", "/liens", (app, rest, query) => new ExplorePage(app, "liens", query)],
  ["/parcel/*", "/parcels", (app, rest) => new ParcelPage(app, `/v1/parcels/${rest}`)],
  ["/counties", "/counties", (app, rest, query) => new CountiesPage(app, query)],
  ["/county/*", "/counties", (app, rest) => new CountyPage(app, decoded(rest))],
  ["/changes", "/changes", (app, rest, query) => new ChangesPage(app, query)],
  ["/tasks", "/tasks", (app, rest, query) => new TasksPage(app, query)],
  ["/task/*", "/tasks", (app, rest) => new TaskPage(app, decoded(rest))],
  ["/failures", "/failures", (app, rest, query) => new FailuresPage(app, query)],
  ["/workers", "/workers", (app) => new WorkersPage(app)],
  ["/worker/*", "/workers", (app, rest) => new WorkerPage(app, decoded(rest))],
  ["/schedules", "/schedules", (app, rest, query) => new SchedulesPage(app, query)],
];

// Returns the view of this address and the path of its link in the navigation.
export function viewOf(app, { pathname, hash }) {
  const [path, query = ""] = (hash.slice(1) || "/").split("?");
  if (pathname === "/docs") return [new DocsPage(), "/docs"];
  if (pathname !== "/") return [new NotFoundPage(pathname), ""];
  for (const [pattern, link, make] of ROUTES) {
    const rest = pattern.endsWith("*") && path.startsWith(pattern.slice(0, -1)) ? path.slice(pattern.length - 1) : "";
    if (path === pattern || rest) return [make(app, rest, new URLSearchParams(query)), link];
  }
  return [new NotFoundPage(path), ""];
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

class NotFoundPage {
  title = "Page not found";

  constructor(path) {
    this.root = h(
      "div",
      { class: "page missing" },
      h("h1", null, this.title),
      h("p", null, "There is no page at ", h("code", null, path), "."),
      h("p", null, h("a", { href: "/#/" }, "Go to the overview"), " or choose a page above."),
    );
  }
}
