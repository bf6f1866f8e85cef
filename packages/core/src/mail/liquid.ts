/** Liquid with everything taken away that templates of tenants are not to have. The library is loaded with this module. */
import { Liquid } from "liquidjs";

export interface Engines {
  readonly plain: Liquid;
  /** Puts variables in escaped. */
  readonly html: Liquid;
}

export function createEngines(): Engines {
  const options = {
    templates: {},
    ownPropertyOnly: true,
    strictVariables: true,
    strictFilters: true,
    lenientIf: true,
    /** Characters. */
    parseLimit: 262_144,
    /** Milliseconds in which nothing else of this process runs. */
    renderLimit: 200,
    memoryLimit: 2_097_152,
    timezoneOffset: 0,
    locale: "en-US",
  };
  const engines = { plain: new Liquid(options), html: new Liquid({ ...options, outputEscape: "escape" as const }) };
  // There are no other templates to refer to, and who tries is told when the template is written.
  for (const { tags } of [engines.plain, engines.html])
    for (const tag of ["include", "render", "layout", "block"]) Reflect.deleteProperty(tags, tag);
  return engines;
}
