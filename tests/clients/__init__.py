"""OpenCode's own clients, unmodified, at kedge's server; kedge is seen only through them."""
