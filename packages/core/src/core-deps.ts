/** What the core is given; composed once per process in functions/compose.ts. */
import type { Adapters } from "./tools/catalog.ts";
import type { AdapterDeps } from "./deps.ts";

export interface CoreDeps extends AdapterDeps {
  /** One per scheme, see tools/schemes/index.ts. */
  readonly adapters: Adapters;
}
