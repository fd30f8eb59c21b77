"""Who a client is and what it may hold: peers, tenants, sessions."""
