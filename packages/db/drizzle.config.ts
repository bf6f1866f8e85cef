/** `npm run db:generate`: SQL of the difference between the schema and the last migration. */
import { defineConfig } from "drizzle-kit";

export default defineConfig({
  dialect: "turso",
  schema: "./packages/db/src/schema/index.ts",
  out: "./packages/db/migrations",
});
