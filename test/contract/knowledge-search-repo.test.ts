import { fileShards, serverShards } from "../support/databases.ts";
import { describeKnowledgeSearchRepo } from "./knowledge-search-repo.ts";

describeKnowledgeSearchRepo("file", fileShards);
describeKnowledgeSearchRepo("server", serverShards);
