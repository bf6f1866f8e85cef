/** One line for each scheme with services. */
import type { ToolScheme } from "@toolyard/core/tools/uri";
import { apiFixture } from "./api.ts";
import type { SchemeFixture } from "./fixture.ts";
import { mailFixture } from "./mail.ts";
import { mcpFixture } from "./mcp.ts";
import { ossFixture } from "./oss.ts";
import { smsFixture } from "./sms.ts";
import { mqFixture } from "./mq.ts";

export const schemeFixtures: { readonly [S in ToolScheme]?: SchemeFixture } = {
  api: apiFixture,
  mcp: mcpFixture,
  oss: ossFixture,
  mail: mailFixture,
  sms: smsFixture,
  mq: mqFixture,
};
