/** The release, as package.json says it. Imported as JSON so that bundles carry it. */
import manifest from "../package.json" with { type: "json" };

export const version: string = manifest.version;
