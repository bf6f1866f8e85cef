/**
 * `knowledge://base/document`: the calls that bring documents into their base (KB-1). They are made by the routes of
 * the management plane; nothing of this is offered to models or listed.
 */
import { ingestTool } from "../../knowledge/ingest-call.ts";
import type { CoreDeps } from "../../core-deps.ts";
import type { ToolAdapter } from "../adapter.ts";

/** @param core what all adapters are a part of; asked for with the first call */
export function createKnowledgeAdapter(core: () => CoreDeps): ToolAdapter {
  return {
    resolve: (uri) => (uri.scheme === "knowledge" ? ingestTool(uri.service, uri.tool) : undefined),
    list: () => [],
    options: {},
    async invoke(call, context) {
      const { ingestDocument, reindexBase } = await import("../../knowledge/ingest.ts");
      return call.uri.tool === "" ? reindexBase(core(), call, context) : ingestDocument(core(), call, context);
    },
  };
}
